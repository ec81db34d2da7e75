"""What the owner of the table puts on it runs with the owner's rights, in the worker too."""

from checks import await_until


def test_trigger_of_a_plain_owner(db):
    """A trigger of a role without superuser that fires when the relay deletes a row stays that role."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    db.sql("CREATE ROLE table_owner")
    try:
        db.sql("CREATE TABLE public.seen (who text)")
        db.sql("GRANT INSERT ON public.seen TO table_owner")
        db.sql("ALTER TABLE acemq.outbox OWNER TO table_owner")
        db.sql("GRANT USAGE ON SCHEMA acemq, public TO table_owner")
        db.sql("CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS"
               " 'BEGIN INSERT INTO public.seen VALUES (current_user); RETURN NULL; END'")
        db.sql("CREATE TRIGGER note AFTER DELETE ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION public.note()")
        db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
        db.vhost.drain(queue, 1)
        await_until(lambda: db.value("SELECT count(*) FROM public.seen") == 1, 10, "the trigger has fired")
        assert db.value("SELECT who FROM public.seen") == "table_owner"
    finally:
        db.sql("REASSIGN OWNED BY table_owner TO postgres")
        db.sql("DROP OWNED BY table_owner")
        db.sql("DROP ROLE table_owner")
