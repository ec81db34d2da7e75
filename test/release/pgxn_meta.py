"""The rules of the PGXN Meta Spec 1.0.0 for a META.json.

May depend on: nothing of ours.
"""

import re

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-?[A-Za-z][0-9A-Za-z-]*)?")
_RANGE = re.compile(rf"((<|<=|>|>=|==|!=)\s*)?(0|{_VERSION.pattern})")
_TERM = re.compile(r"[^\s/\\\x00-\x1f\x7f]{2,}")
_TAG = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:\S+")
_LICENSES = set("""
    agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 gpl_1 gpl_2 gpl_3 lgpl_2_1 lgpl_3_0
    mit mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql qpl_1_0 ssleay sun zlib
    open_source restricted unrestricted unknown""".split())
_REQUIRED = {"name", "version", "abstract", "maintainer", "license", "provides", "meta-spec"}
_OPTIONAL = {"description", "generated_by", "tags", "no_index", "prereqs", "release_status", "resources"}


def _text(value):
    return isinstance(value, str) and value.strip() != ""


def _strings(value):
    return _text(value) or (isinstance(value, list) and value != [] and all(_text(entry) for entry in value))


def _unknown_keys(mapping, known):
    return [key for key in mapping if key not in known and not re.match("[xX]_", key)]


def _license_faults(value):
    if isinstance(value, dict):
        return [] if value and all(_text(key) and _URI.fullmatch(uri) for key, uri in value.items()) else ["license: no URI"]
    given = value if isinstance(value, list) else [value]
    return [f"license: {name!r} is none that PGXN knows" for name in given if name not in _LICENSES] or (
        [] if given else ["license: none"])


def _provides_faults(provides):
    if not isinstance(provides, dict) or not provides:
        return ["provides: nothing"]
    faults = []
    for name, entry in provides.items():
        if not _TERM.fullmatch(name):
            faults.append(f"provides: {name!r} is no term")
        faults += [f"provides.{name}: {key} is missing" for key in ("file", "version") if not _text(entry.get(key))]
        if not _VERSION.fullmatch(str(entry.get("version"))):
            faults.append(f"provides.{name}.version is no semantic version")
        faults += [f"provides.{name}: unknown key {key}"
                   for key in _unknown_keys(entry, {"file", "version", "docfile", "abstract"})]
    return faults


def _prereqs_faults(prereqs):
    faults = []
    for phase, kinds in prereqs.items():
        if phase not in ("configure", "build", "test", "runtime", "develop"):
            faults.append(f"prereqs: unknown phase {phase}")
        for kind, wanted in kinds.items():
            if kind not in ("requires", "recommends", "suggests", "conflicts"):
                faults.append(f"prereqs.{phase}: unknown relationship {kind}")
            for name, versions in wanted.items():
                if not all(_RANGE.fullmatch(part.strip()) for part in str(versions).split(",")):
                    faults.append(f"prereqs.{phase}.{kind}.{name}: {versions!r} is no version range")
    return faults


def faults_of(meta):
    """What is wrong with it, one line each."""
    faults = [f"{key} is missing" for key in sorted(_REQUIRED - set(meta))]
    faults += [f"unknown key {key}" for key in _unknown_keys(meta, _REQUIRED | _OPTIONAL)]
    if faults:
        return faults
    if not _TERM.fullmatch(str(meta["name"])):
        faults.append("name is no term")
    if not _VERSION.fullmatch(str(meta["version"])):
        faults.append("version is no semantic version")
    for key in ("abstract", "description", "generated_by"):
        if key in meta and not _text(meta[key]):
            faults.append(f"{key} is no text")
    if not _strings(meta["maintainer"]):
        faults.append("maintainer is neither a text nor texts")
    faults += _license_faults(meta["license"])
    faults += _provides_faults(meta["provides"])
    faults += _prereqs_faults(meta.get("prereqs", {}))
    if not re.fullmatch(r"1\.0\.\d+", str(meta["meta-spec"].get("version"))):
        faults.append("meta-spec.version is not 1.0")
    faults += [f"tag {tag!r}" for tag in meta.get("tags", []) if not _TAG.fullmatch(str(tag))]
    if meta.get("release_status", "stable") not in ("stable", "testing", "unstable"):
        faults.append("release_status is unknown")
    return faults
