"""The verdict on a program: as JSON, whose keys docs/simt_reference.md has, and as SARIF 2.1.0, by
which a code host shows faults beside the lines of a change.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cuda_on_cpu import SimtError, __version__, compiling, unsupported

Verdict = dict[str, Any]

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
HELP = "docs/simt.md says what each kind means, under What it reports."
# Not the program's mistakes.
NOTES = ("not_supported",)


def by_us(
    verdict: str, kind: str, code: int, said: Iterable[tuple[str, str, str]], schedule: str = ""
) -> Verdict:
    """Of a program that could not tell its own; common/simt/report/ending.cpp has the others.
    `said` is a list of (file, line, message)."""
    nowhere = {"kernel": "", "block": [0, 0, 0], "thread": [0, 0, 0], "action": "", "hint": ""}
    faults = []
    for name, line, message in said:
        where = {"file": compiling.short(name), "line": int(line), "calls": [], "other": None}
        text = f"{name}:{line}: {message}"
        faults.append({"kind": kind, "message": message, "text": text, **nowhere, **where})
    return {
        "version": 1,
        "verdict": verdict,
        "exit_code": code,
        "program_exit_code": code,
        "schedule": schedule or "in-order",
        "launches": 0,
        "launches_watched": 0,
        "launches_sampled": 0,
        "kernels": [],
        "faults": faults,
        "warnings": [],
        "unsupported": [one["text"] for one in faults if kind == "not_supported"],
    }


def not_begun(error: SimtError, file: str, schedule: str) -> Verdict:
    """Of a program that does not compile, or needs what is not supported."""
    if isinstance(error, compiling.NotSupported):
        place, message = str(error).split(": not supported: ")
        name, _, line = place.rpartition(":") if place[-1].isdigit() else (place, "", "0")
        said = [(name, line, message)]
        return by_us("unsupported", "not_supported", error.code, said, schedule)
    found = unsupported.ERROR.finditer(str(error))
    said = [(one["file"], one["line"], one["said"]) for one in found] or [(file, "0", str(error))]
    return by_us("does_not_compile", "does_not_compile", error.code, said, schedule)


def require_writable(place: str | None) -> None:
    """Before the program runs, which may take long."""
    if place and place != "-":
        try:
            open(place, "a").close()
        except OSError:
            raise SimtError(f"cannot write {place}") from None


def write(place: str | None, document: object) -> None:
    """As JSON; "-" is the standard output."""
    if not place:
        return
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        if place == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            Path(place).write_text(text, encoding="utf-8")
    except OSError:
        raise SimtError(f"cannot write {place}") from None


def sarif(verdicts: list[Verdict]) -> dict[str, Any]:
    """One run of the tool, which has tried these programs."""
    results = [one for verdict in verdicts for one in results_of(verdict)]
    kinds = sorted({one["ruleId"] for one in results})
    rules = []
    for kind in kinds:
        text = {"text": kind.replace("_", " ")}
        rules.append(
            {"id": kind, "shortDescription": text, "fullDescription": text, "help": {"text": HELP}}
        )
    for one in results:
        one["ruleIndex"] = kinds.index(one["ruleId"])
    driver = {"name": "simt-cuda", "version": __version__, "rules": rules}
    # of programs that are broken, too: it is the tool that has done its work
    invocations = [{"executionSuccessful": True, "exitCode": one["exit_code"]} for one in verdicts]
    run = {"tool": {"driver": driver}, "invocations": invocations, "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def results_of(verdict: Verdict) -> Iterator[dict[str, Any]]:
    for level, faults in (("error", verdict["faults"]), ("warning", verdict["warnings"])):
        for fault in faults:
            yield result(fault, "note" if fault["kind"] in NOTES else level, verdict["program"])
    if not verdict["faults"]:
        if verdict["verdict"] == "timeout":
            yield plain("timeout", "error", "the program has not ended in time", verdict)
        for text in verdict["unsupported"]:
            yield plain("not_supported", "note", text, verdict)


def plain(kind: str, level: str, text: str, verdict: Verdict) -> dict[str, Any]:
    """Of a file, not of a line."""
    where = [location(verdict["program"], 0)]
    return {"ruleId": kind, "level": level, "message": {"text": text}, "locations": where}


def result(fault: dict[str, Any], level: str, program: str) -> dict[str, Any]:
    text = fault["text"] if fault["action"] else fault["message"]
    kind = fault["kind"]
    if kind == "not_supported":
        text = f"not supported: {text}"
    found = {"ruleId": kind, "level": level, "message": {"text": text}}
    has_place = Path(fault["file"]).is_file()
    place = (fault["file"], fault["line"]) if has_place else (program, 0)
    found["locations"] = [location(*place)]
    other = fault["other"]
    related = [*calls(fault)]
    if other and Path(other["file"]).is_file():
        said = f"thread {index(other['thread'])} of block {index(other['block'])} {other['action']}"
        related += [location(other["file"], other["line"], said), *calls(other)]
    if related:
        found["relatedLocations"] = related
    return found


def calls(access: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for call in access["calls"]:
        if Path(call["file"]).is_file():
            yield location(call["file"], call["line"], f"{call['function']} is called here")


def index(three: list[int]) -> str:
    return f"({','.join(map(str, three))})"


def location(file: str, line: int, message: str = "") -> dict[str, Any]:
    """`file` as messages name it: from here, or from the root of the file system."""
    artifact = {"uri": Path(file).as_uri()} if Path(file).is_absolute() else {}
    artifact = artifact or {"uri": quote(file), "uriBaseId": "%SRCROOT%"}
    physical: dict[str, Any] = {"artifactLocation": artifact}
    if line:
        physical["region"] = {"startLine": line}
    found: dict[str, Any] = {"physicalLocation": physical}
    if message:
        found["message"] = {"text": message}
    return found
