"""The arithmetic and the checks of the benchmarks: what they say is worth as much as these are right."""

import json
from dataclasses import replace

import pytest

from bench.figures import Figure, InvalidRunError, Result, at_least, at_most, median, percentile
from bench.report import table
from bench.work import DOCUMENT_BYTES, Evidence, Stored, answer_to, check, document_of, job_ids

IDS = job_ids("job", 3)


def evidence() -> Evidence:
    """A run in which all went well."""
    stored = {}
    for job_id in IDS:
        answer = answer_to(job_id, document_of(job_id))
        stored[job_id] = Stored("completed", 1, json.dumps(answer))
    return Evidence(stored, IDS)


def calls() -> dict[str, int]:
    """What the upstream counts in such a run."""
    return dict.fromkeys(IDS, 1)


def changed(**fields: str) -> Evidence:
    """A run in which one job is stored otherwise."""
    good = evidence()
    return replace(good, stored={**good.stored, IDS[1]: replace(good.stored[IDS[1]], **fields)})


@pytest.mark.parametrize(
    ("samples", "share", "expected"),
    [
        ([7], 0.99, 7),
        ([3, 1, 2], 0.5, 2),
        (range(1, 101), 0.99, 99),
        (range(1, 201), 0.99, 198),
        ([1, 2], 1, 2),
    ],
)
def test_bench_percentile_is_nearest_rank(samples, share, expected):
    """A percentile is a sample: the smallest that at least this share of the samples do not pass."""
    assert percentile(list(samples), share) == expected


@pytest.mark.parametrize(("samples", "share"), [([], 0.5), ([1], 0), ([1], 1.1)])
def test_bench_percentile_of_nothing_is_refused(samples, share):
    """A percentile needs a sample and a share above 0 and up to 1."""
    with pytest.raises(ValueError, match="no percentile"):
        percentile(samples, share)


@pytest.mark.parametrize(("samples", "expected"), [([5], 5), ([3, 1, 2], 2), ([4, 1, 3, 2], 2.5)])
def test_bench_median_is_the_middle(samples, expected):
    """The median of an even number of samples is the mean of the two in the middle."""
    assert median(samples) == expected


def test_bench_documents_differ_and_have_their_size():
    """No two jobs of a run share a document, and each has the size that the benchmark names."""
    documents = {document_of(job_id) for job_id in job_ids("interactive-job", 100)}
    assert len(documents) == 100
    assert {len(document) for document in documents} == {DOCUMENT_BYTES}


def test_bench_good_run_is_valid():
    """A run in which every job was called once, stored and audited passes, also on a side without audit."""
    check(IDS, calls(), evidence())
    check(IDS, calls(), replace(evidence(), audited=None))


@pytest.mark.parametrize(
    ("calls", "evidence", "said"),
    [
        (dict.fromkeys(IDS, 1) | {IDS[0]: 2}, evidence(), "more than once"),
        (dict.fromkeys(IDS[:2], 1), evidence(), "calls of 2"),
        (dict.fromkeys([*IDS, "other"], 1), evidence(), "calls of 4"),
        (calls(), replace(evidence(), stored={}), "not in the store"),
        (calls(), changed(status="failed"), "is failed"),
        (calls(), changed(result='{"id": "other"}'), "has the result"),
        (calls(), replace(evidence(), audited=IDS[:2]), "has 2 events"),
        (calls(), replace(evidence(), audited=[*IDS, IDS[0]]), "has 4 events"),
    ],
)
def test_bench_whatever_went_wrong_makes_a_run_invalid(calls, evidence, said):
    """A job that was called twice, lost, failed, answered wrongly, or audited not exactly once has no figures."""
    with pytest.raises(InvalidRunError, match=said):
        check(IDS, calls, evidence)


def test_bench_table_says_what_is_missed():
    """A figure beside its goal is met or missed, one without a goal is neither."""
    figures = [
        Figure("speed", 1.9, "x", at_least(2)),
        Figure("wait", 130, "ms", at_most(130)),
        Figure("jobs", 12, ""),
    ]
    rows = table(Result("P0", "nothing", figures)).splitlines()[-3:]
    assert rows == [
        "| speed | 1.90 x | >= 2 | MISSED |",
        "| wait | 130 ms | <= 130 | met |",
        "| jobs | 12.00 | | |",
    ]
