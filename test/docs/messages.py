"""The messages that an operator can meet, as the sources have them.

May depend on: pages.py.
"""

import re

from pages import TOP

# Functions that take a message, and which of their arguments it is.
CALLS = {"errmsg": 1, "GUC_check_errmsg": 1, "broker_fail": 3, "conn_lost": 2, "relay_lost": 2, "scheduler_lost": 2,
         "scheduler_consumer_gone": 2, "scheduler_note_trouble": 2, "refuse": 2}

# What the preprocessor puts between two pieces of a text.
NAMES = {"ACEMQ_SCHEMA": "acemq", "ACEMQ_EXTENSION": "acemq", "LADDER_DUE_QUEUE": "acemq.schedule.due"}

# Written for tests only.
NOT_MET = {"kill_points.c"}

# A character that is in no message.
VARIES = "\N{HORIZONTAL ELLIPSIS}"

LITERAL = r'"(?:[^"\\]|\\.)*"'
TEXT = re.compile(rf"\s*((?:(?:{LITERAL}|[A-Z][A-Z0-9_]{{7,}})\s*)+)")
CONVERSION = re.compile(r"%[-#0-9.*]*(?:ll|l|z)?[a-zA-Z]")


def plain(text):
    """A message with VARIES for what varies, without the prefix that all lines of the log have."""
    text = CONVERSION.sub(VARIES, text)
    return re.sub(rf"^acemq: ({VARIES}|scheduler: )?", "", text)


def pieces(source):
    """A text of C as it is after the preprocessor: literals side by side are one."""
    text = ""
    for literal, name in re.findall(rf"({LITERAL})|([A-Z][A-Z0-9_]{{7,}})", source):
        if literal:
            text += re.sub(r"\\(.)", r"\1", literal[1:-1])
        else:
            text += NAMES.get(name, VARIES)
    return text


def of_file(path):
    source = path.read_text(encoding="utf-8")
    for call in re.finditer(rf"\b({'|'.join(CALLS)})\(", source):
        skipped = re.match(r"\s*(?:[\w>-]+,\s*){%d}" % (CALLS[call.group(1)] - 1), source[call.end():])
        if skipped is None:
            continue
        text = TEXT.match(source[call.end() + skipped.end():])
        if text and '"' in text.group(1):
            yield plain(pieces(text.group(1)))


def messages():
    """(message, file), sorted, each once."""
    found = {}
    for path in sorted([*TOP.glob("src/**/*.c"), *TOP.glob("bgworker/*.c")]):
        if path.name not in NOT_MET:
            for message in of_file(path):
                if re.search(r"\w{2}", message):
                    found.setdefault(message, path.name)
    return sorted(found.items())


def errors_of(path):
    """Each ereport(ERROR, ...) of a file, whole."""
    source = path.read_text(encoding="utf-8")
    for call in re.finditer(r"\bereport\(ERROR,.*?\);\n", source, re.S):
        yield call.group(0)


def checks_of_the_doctor():
    names = set()
    for path in TOP.glob("src/doctor*.c"):
        source = path.read_text(encoding="utf-8")
        names.update(re.findall(r'doctor_report\(\s*doctor,\s*"([^"]+)"', source))
        names.update(re.findall(r'^    \{"([^"]+)",$', source, re.M))
    return names
