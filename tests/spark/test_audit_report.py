"""The page of an audit shows what was found, needs nothing from elsewhere, and shows what records say as text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from aioproducer.spark.audit.findings import Finding, FindingKind
from aioproducer.spark.audit.offsets import OffsetRange
from aioproducer.spark.audit.report import html_report
from aioproducer.spark.audit.verdict import AuditVerdict, Expectation, add_up

RANGES = [OffsetRange(0, 0, 1000), OffsetRange(1, 500, 600), OffsetRange(2, 0, 0)]
UNCHECKED = {"missing": "no broker was reachable"}


def verdict(*findings: Finding) -> AuditVerdict:
    read = [Finding(FindingKind.READ, 0, count=1000), Finding(FindingKind.EXPECTED, count=1000)]
    found = add_up("orders <script>", Expectation("expected", UNCHECKED), RANGES, [*read, *findings])
    return replace(found, seconds={"planning": 1.5, "total": 4.0}, cluster="kafka:9092")


class Balanced(HTMLParser):
    """Knows whether every element that was opened was closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        assert tag == "rect"

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1] in self.VOID:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_clean_page_is_whole_and_needs_nothing_from_elsewhere() -> None:
    page = html_report(verdict(), "2026-01-01")
    parsed = Balanced(page)

    assert parsed.open == []
    assert "CLEAN" in parsed.text
    assert "1,000 records expected, 1,000 read" in parsed.text
    assert not re.search(r"<script|<link|<img|@import|url\(|https?:", page)
    assert "prefers-color-scheme: dark" in page
    assert "Not checked: missing, because no broker was reachable." in parsed.text


def test_faults_are_shown_with_their_places_and_contents_of_records_are_escaped() -> None:
    found = verdict(Finding(FindingKind.REORDERED, 0, 700, other=650, number=3))
    found = replace(found, samples=[replace(found.samples[0], key="<b>&", value="<script>alert(1)</script>")])

    page = html_report(found, "2026-01-01")
    parsed = Balanced(page)

    assert "FAULTS FOUND" in parsed.text
    assert "0:700" in parsed.text
    assert "comes after offset 650" in parsed.text
    assert 'class="fault"' in page
    assert "<script" not in page


def test_a_topic_of_which_nothing_was_read_also_has_a_page() -> None:
    nothing = add_up("orders", Expectation("log"), [], [])

    assert Balanced(html_report(nothing, "2026-01-01")).open == []
