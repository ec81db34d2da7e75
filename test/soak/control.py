"""A second Erlang node that stays, to tell the broker's things: rabbitmqctl takes a second of start for each.

May depend on: ../lib/processes.py, ../lib/rabbit.py.
"""

import select
import subprocess

import processes

# Reads a line of Erlang expressions, has the broker's node evaluate them, writes their value.
_LOOP = """
Loop = fun Again() ->
    case io:get_line("") of
        eof -> halt();
        Line ->
            {ok, Tokens, _} = erl_scan:string(Line),
            {ok, Expressions} = erl_parse:parse_exprs(Tokens),
            Result = rpc:call('NODE', erl_eval, exprs, [Expressions, []], 120000),
            io:format("~w~n", [Result]),
            Again()
    end
end,
Loop()."""


class Control:
    """Use it as a context manager, inside that of its broker.  It ends with its input, so also with us."""

    def __init__(self, broker):
        self._broker = broker
        self._process = None

    def __enter__(self):
        environment = self._broker._environment()  # pylint: disable=protected-access
        node = environment["RABBITMQ_NODENAME"]
        argv = ["erl", "-noshell", "-hidden", "-sname", f"control-{node}", "-kernel", "inet_dist_use_interface",
                "{127,0,0,1}", "-eval", " ".join(_LOOP.replace("NODE", node).split())]
        with open(self._broker.log, "ab") as log:
            self._process = subprocess.Popen(
                argv, cwd=self._broker.directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, bufsize=1, start_new_session=True,
                **processes.credentials(self._broker.user))
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def evaluate(self, *steps, timeout=120):
        """Erlang expressions, one after the other, in the broker's node; the last one's value as Erlang writes it."""
        self._process.stdin.write(", ".join(steps) + ".\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            raise TimeoutError(f"the broker's node did not evaluate {steps} in {timeout} s")
        result = self._process.stdout.readline().strip()
        if not result.startswith("{value,"):
            raise RuntimeError(f"{steps} in the broker's node: {result or 'the control node is gone'}")
        return result
