"""``CachedDataset.audit``: which payloads are pickles, what they name, what cannot be followed."""

from __future__ import annotations

import collections
import decimal
import pickle
from pathlib import Path

import numpy as np
import pytest

import datasetrt as drt
from datasetrt import audit as audit_module
from tests.rows import RowSource, rows_of


def write(root: Path, payloads: list[bytes], codec: object = None, name: str = "s") -> drt.CachedDataset:
    optional = {} if codec is None else {"codec": codec}
    rows = [(payload, {"i": i}) for i, payload in enumerate(payloads)]
    return drt.cache(RowSource(name, rows, **optional), root)


def named(report: drt.AuditReport) -> dict[str, tuple[int, int]]:
    return {each.name: (each.samples, each.sample_id) for each in report.globals}


def test_pickles_with_arrays_beside_them(tmp_path: Path) -> None:
    codec = drt.codecs.PickleOOB(trust=True)
    payloads = [codec.dumps({"x": np.arange(3.0)}), codec.dumps(collections.Counter())]
    report = write(tmp_path, payloads, codec).audit()
    assert report.ok
    assert named(report)["collections.Counter"] == (1, 1)
    assert named(report)["numpy.ndarray"] == (1, 0)
    assert report.pickles == 2


def test_dill(tmp_path: Path) -> None:
    codec = drt.codecs.Dill(trust=True)
    report = write(tmp_path, [codec.dumps(lambda: 1)], codec).audit()
    assert report.ok
    assert "dill._dill._create_function" in named(report)


def test_payloads_of_no_codec_are_told_apart_by_their_look(tmp_path: Path) -> None:
    oob = drt.codecs.PickleOOB(trust=True)
    payloads = [
        b"",
        b"plain text",
        b"\xff\xd8\xff\xe0 an image",
        b"\x89PNG\r\n\x1a\n",
        pickle.dumps(decimal.Decimal(1), 0),
        pickle.dumps(decimal.Decimal(1), 5),
        oob.dumps(decimal.Decimal(1)),
        b"cos\nsystem\n(S'x'\ntR and then it breaks",
    ]
    report = write(tmp_path, payloads).audit()
    assert report.pickles == 4
    assert named(report)["decimal.Decimal"] == (3, 4)
    assert named(report)["os.system"] == (1, 7)
    assert [problem.sample_id for problem in report.problems] == [7]


@pytest.mark.parametrize("codec", [drt.codecs.Json(), drt.codecs.Npy(), drt.codecs.Msgpack()])
def test_payloads_of_other_codecs_are_no_pickles(tmp_path: Path, codec: object) -> None:
    report = write(tmp_path, [b"cos\nsystem\n."], codec).audit()
    assert report == drt.AuditReport((), (), samples=1, pickles=0)


def test_each_cache_has_its_own_codec(tmp_path: Path) -> None:
    data = pickle.dumps(collections.Counter())
    write(tmp_path, [data], drt.codecs.Pickle(trust=True), "a")
    write(tmp_path, [data], drt.codecs.Json(), "b")
    ds = drt.open_dataset([tmp_path / "b", tmp_path / "a"])
    report = ds.audit()
    assert (report.samples, report.pickles) == (2, 1)
    (found,) = report.globals
    assert found.cache_id == ds.caches[1].cache_id


def test_a_view_is_audited_by_its_rows(tmp_path: Path) -> None:
    payloads = [pickle.dumps(collections.Counter()), pickle.dumps(decimal.Decimal(1))]
    ds = write(tmp_path, payloads, drt.codecs.Pickle(trust=True))
    assert list(named(ds[1:].audit())) == ["decimal.Decimal"]
    assert named(ds[::-1].audit())["decimal.Decimal"] == (1, 1)


@pytest.mark.parametrize("payload", [b"", b"DRTB", b"\x80\x05", pickle.dumps(1) + b"more"])
def test_what_is_no_sound_pickle_is_a_problem(tmp_path: Path, payload: bytes) -> None:
    report = write(tmp_path, [payload], drt.codecs.Pickle(trust=True)).audit()
    (problem,) = report.problems
    assert (problem.kind, problem.sample_id) == ("decode", 0)
    assert str(tmp_path / "s") == problem.path


def test_a_broken_frame_of_pickle_oob_is_a_problem(tmp_path: Path) -> None:
    codec = drt.codecs.PickleOOB(trust=True)
    payload = bytearray(codec.dumps(1))
    payload[8] ^= 0xFF
    report = write(tmp_path, [bytes(payload)], codec).audit()
    assert [problem.kind for problem in report.problems] == ["decode"]


def test_a_damaged_sample_does_not_hide_the_others(tmp_path: Path) -> None:
    payloads = [pickle.dumps(decimal.Decimal(i)) for i in range(50)]
    ds = write(tmp_path, payloads, drt.codecs.Pickle(trust=True))
    shard = tmp_path / "s" / "shards" / "000000.bin"
    content = bytearray(shard.read_bytes())
    content[content.find(payloads[20]) + 5] ^= 1
    shard.write_bytes(content)
    report = ds.audit()
    assert [(problem.kind, problem.sample_id) for problem in report.problems] == [("record-checksum", 20)]
    assert named(report)["decimal.Decimal"] == (49, 0)
    assert report.pickles == 49


def test_lists_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MAX_GLOBALS", 3)
    monkeypatch.setattr(audit_module, "MAX_PROBLEMS", 2)
    payloads = [b"cm\nn%d\n" % i for i in range(5)]
    report = write(tmp_path, payloads, drt.codecs.Pickle(trust=True)).audit()
    assert len(report.globals) == 3
    assert len(report.problems) == 4
    assert "2 uses of more than 3 globals" in report.problems[2].message
    assert "3 further payloads" in report.problems[3].message


def test_progress_is_told_and_may_end_it(tmp_path: Path) -> None:
    ds = drt.cache(RowSource("s", rows_of(10)), tmp_path)
    told: list[tuple[int, int]] = []
    ds.audit(on_progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (10, 10)
    verified: list[tuple[int, int]] = []
    ds.verify(on_progress=lambda done, total: verified.append((done, total)))
    assert verified

    def stop(done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        ds.audit(on_progress=stop)
    with pytest.raises(LookupError, match="enough"):
        ds.verify(on_progress=stop)


def test_a_record_is_no_pickle_whatever_its_layout(tmp_path: Path) -> None:
    codec = drt.codecs.Record({"x": ("S12", ())})
    report = write(tmp_path, [codec.dumps({"x": b"cos\nsystem\n."})], codec).audit()
    assert report == drt.AuditReport((), (), samples=1, pickles=0)
    # Beside a cache that is looked into.
    write(tmp_path, [pickle.dumps(decimal.Decimal(1))], drt.codecs.Pickle(trust=True), "p")
    report = drt.open_dataset([tmp_path / "s", tmp_path / "p"]).audit()
    assert list(named(report)) == ["decimal.Decimal"]
    assert report.pickles == 1
