/*
 * database.c
 *		A connection to the database, and statements that must not fail.
 *
 * May depend on: bench.h.
 */
#include "bench.h"

PGconn *
database_connect(void)
{
	PGconn *connection = PQconnectdb(options.database);

	if (PQstatus(connection) != CONNECTION_OK)
		die("%s", PQerrorMessage(connection));
	return connection;
}

void
database_run(PGconn *connection, const char *sql)
{
	PGresult *result = PQexec(connection, sql);

	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		die("%s: %s", sql, PQerrorMessage(connection));
	PQclear(result);
}
