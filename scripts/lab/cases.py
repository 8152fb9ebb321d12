"""Counts the test cases of a run of ctest, for scripts/test, and prints the line of its verdict.

    python3 -m lab.cases JUNIT.XML "HOW IT RAN"

A test of ctest runs a list of cases in one process. Programs of Catch2 and of Python's unittest say
how many there were; any other test, and one that ended before it could say so, is one case.
"""

import re
import sys
from typing import NamedTuple
from xml.etree import ElementTree

from cuda_on_cpu.venv import NO_PYPI


class Count(NamedTuple):
    passed: int = 0
    skipped: int = 0
    failed: int = 0

    def __add__(self, other: "Count") -> "Count":  # type: ignore[override]
        return Count(*(a + b for a, b in zip(self, other, strict=True)))


def said(output: str) -> Count:
    """What the programs of a test say themselves of their cases."""
    count = Count()
    for line in output.splitlines():
        if all_passed := re.match(r"All tests passed \(.* in (\d+) test cases?\)", line):
            count += Count(passed=int(all_passed[1]))
        elif line.startswith("test cases: "):
            count += Count(*(int(n) for n in numbers(line)))
        elif ran := re.match(r"Ran (\d+) tests? in ", line):
            count += Count(passed=int(ran[1]))
    return count


def numbers(line: str) -> list[str]:
    """Of Catch2's "test cases: 7 | 5 passed | 1 failed | 1 skipped"."""
    found = {word: number for number, word in re.findall(r"(\d+) (\w+)", line)}
    return [found.get(word, "0") for word in Count._fields]


def count(test: ElementTree.Element) -> Count:
    """The cases of one test of ctest."""
    cases = said(test.findtext("system-out") or "")
    if test.get("status") == "run":  # it passed, also where it consists in a program that fails
        return cases if sum(cases) and not cases.failed else Count(passed=1)
    left_out = test.find("skipped")
    if left_out is not None and "Unable to find" not in left_out.get("message", ""):
        return Count(skipped=cases.skipped or 1)
    return cases if cases.failed else cases + Count(failed=1)


def main() -> int:
    tests = ElementTree.parse(sys.argv[1]).getroot().findall("testcase")
    total = sum((count(test) for test in tests), Count())
    how = sys.argv[2]
    print(
        f"{total.passed} test cases passed, {total.skipped} were skipped, "
        f"{total.failed or 'none'} failed ({how})."
    )
    for test in tests:
        if NO_PYPI in (test.findtext("system-out") or ""):
            print(f"Left out: {test.get('name')}, because {NO_PYPI}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
