/*
 * no_messages.c
 *		Loaded behind the sanitizer's runtime: a server without message catalogs.
 *
 * With the runtime of gcc 12 before glibc 2.36, the lock that these functions
 * take has been released once too often by the time main() runs, and the
 * server waits for it for ever.  Our servers speak English anyway.
 */
extern char *bindtextdomain(const char *domain, const char *directory);
extern char *bind_textdomain_codeset(const char *domain, const char *codeset);
extern char *textdomain(const char *domain);

char *
bindtextdomain(const char *domain, const char *directory)
{
	return (char *) directory;
}

char *
bind_textdomain_codeset(const char *domain, const char *codeset)
{
	return (char *) codeset;
}

char *
textdomain(const char *domain)
{
	return (char *) domain;
}
