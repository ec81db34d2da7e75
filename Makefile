# acemq: PGXS build over src/ (any backend), src/amqp/ (broker client) and bgworker/ (our own processes).

EXTENSION = acemq
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" acemq.control)

MODULE_big = acemq
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/amqp/*.c bgworker/*.c)))

SQL_PARTS = $(sort $(wildcard sql/[0-9]*.sql))
INSTALL_SQL = sql/acemq--$(EXTVERSION).sql
DATA_built = $(INSTALL_SQL)
DATA = $(wildcard sql/acemq--*--*.sql)

REGRESS = $(sort $(notdir $(basename $(wildcard test/sql/*.sql))))
REGRESS_OPTS = --inputdir=test --load-extension=acemq
ISOLATION = $(sort $(notdir $(basename $(wildcard test/specs/*.spec))))
ISOLATION_OPTS = --inputdir=test --load-extension=acemq

EXTRA_CLEAN = $(INSTALL_SQL) acemq-*.zip $(wildcard src/*.gcno src/*.gcda bgworker/*.gcno bgworker/*.gcda)

PG_CONFIG ?= pg_config
# Server headers are system headers to us, so that our own warnings can be errors.
PG_CPPFLAGS = -I$(srcdir)/src -I$(srcdir)/bgworker -isystem $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
# -Bsymbolic: a function of ours must not be taken for one of the server, or of libc, that has the same name.
SHLIB_LINK = -Wl,-Bsymbolic -lrabbitmq -lssl -lcrypto

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(INSTALL_SQL): $(SQL_PARTS)
	cat $^ > $@

# A header change rebuilds everything: the tree is small and stale objects in a server are not worth the seconds.
$(OBJS): $(wildcard src/*.h src/amqp/*.h bgworker/*.h)

# The archive that PGXN takes: the last commit, with the install script that is made of sql/ beside its parts.
DIST = acemq-$(EXTVERSION)
.PHONY: dist
dist: $(INSTALL_SQL)
	@git diff --quiet HEAD || { echo "make dist: commit first, the archive holds what is committed" >&2; exit 1; }
	git archive --format=zip -o $(DIST).zip --prefix=$(DIST)/sql/ --add-file=$(INSTALL_SQL) --prefix=$(DIST)/ HEAD

# Layers: see dev/check-layers.
.PHONY: layers
layers:
	dev/check-layers
