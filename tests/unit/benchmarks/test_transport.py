"""The benchmark of transport: its figures, its steps, and its floors."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.transport import results, steps
from benchmarks.transport.federation import (
    CHECKED_FLOOR,
    FEDSILO,
    ISOLATED_FLOOR,
    TLS,
    Load,
    RoleUsage,
    RunMeasurement,
    accepted_updates,
    free_port,
)
from benchmarks.transport.floors import FloorServer, require_finite, take_part
from benchmarks.transport.model import SentModel, documents
from benchmarks.transport.pictures import draw_roles, draw_scaling, draw_steps
from benchmarks.transport.processes import START, shared_out
from benchmarks.transport.roles import Echo
from benchmarks.transport.steps import (
    RECEIPT,
    STEPS,
    UPLOAD,
    WATERFALL,
    RecordedCall,
    Recorder,
    read_records,
    resolve_function,
)
from benchmarks.transport.tables import page, quantile, ratio, rounds_table
from benchmarks.transport.waterfall import steps_of_round, steps_table
from fedsilo.api.loading import load
from fedsilo.hub.https import HttpsClient
from fedsilo.learning.models import build_module
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State
from fedsilo.wire import issue_server, make_authority

USE = RoleUsage(1, [0.5, 0.7], 0.0, 2e6, 50_000_000, 70_000_000, 20_000_000, 10_000_000, 40_000_000)
LOAD = Load(SentModel.of(1.0, 4), 2, 2, 2)


def run(system: str, *seconds: float) -> RunMeasurement:
    return RunMeasurement(system, list(seconds), {"server": USE}, began=100.0)


def pair(slowness: float) -> dict[str, RunMeasurement]:
    """Runs on a machine that is so many times as slow as it could be."""
    federation = replace(
        run(FEDSILO, 3 * slowness, 3.2 * slowness), uploads=[0.1, 0.2], receipts=[0.01, 0.02], end=1.5
    )
    return {
        TLS: run(TLS, 1 * slowness, 1 * slowness),
        CHECKED_FLOOR: run(CHECKED_FLOOR, 2 * slowness, 2 * slowness),
        ISOLATED_FLOOR: run(ISOLATED_FLOOR, 2.5 * slowness, 2.5 * slowness),
        FEDSILO: federation,
    }


def test_the_ratio_is_taken_within_a_pair_so_that_a_slower_machine_does_not_change_it() -> None:
    pairs = [pair(1), pair(5), pair(2)]
    assert ratio(pairs, TLS) == pytest.approx(3.1)
    assert ratio(pairs, CHECKED_FLOOR) == pytest.approx(1.55)
    assert ratio([{FEDSILO: pairs[0][FEDSILO]}], TLS) is None
    table = rounds_table(pairs).splitlines()
    assert table[2] == "| TLS floor | 6 | 2.00 | 1.00 | 5.00 | 0.60 |  |  |  |  |  |  |"
    assert (
        table[5] == "| fedsilo | 6 | 6.20 | 3.00 | 16.00 | 0.60 | 3.10 | 1.55 | 1.24 | 1.00 | 1.00 | 1.00 |"
    )


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert (quantile(values, 0.5), quantile(values, 0.99)) == (51.0, 100.0)
    assert quantile([3.0], 0.99) == 3.0


def test_what_was_measured_is_read_again_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "2x1.jsonl"
    written = pair(1)
    for number in range(2):
        for one in written.values():
            results.append(path, LOAD, number, one, {"date": "2026-01-01T00:00:00Z", "command": "c"})
    read, pairs = results.read(path)
    assert (read, pairs) == (LOAD, [written, written])
    text = page(read, pairs)
    assert "uploads, from the first request to the receipt: 4, p50 0.200 s, p99 0.200 s" in text
    assert "receipts, from the last byte sent: 4, p50 0.020 s, p99 0.020 s; lost updates: 0" in text
    assert "| fedsilo | server | 1 | 0.60 | 50 | 20 |" in text
    draw_roles(read, pairs, tmp_path / "roles.png")
    with_aggregator = [{FEDSILO: replace(written[FEDSILO], roles={"aggregator": USE}), TLS: written[TLS]}]
    draw_scaling([(read, with_aggregator)], tmp_path / "scaling.png")
    assert all((tmp_path / f"{name}.png").stat().st_size > 1000 for name in ("roles", "scaling"))


@pytest.mark.parametrize(("megabytes", "layers"), [(1.0, 4), (10.0, 8), (0.01, 1)])
def test_the_model_has_the_weights_that_it_says_and_a_job_can_have_it(
    tmp_path: Path, megabytes: float, layers: int
) -> None:
    model = SentModel.of(megabytes, layers)
    assert model.size == pytest.approx(megabytes * 1e6, rel=0.02)
    (tmp_path / "job.yaml").write_text("\n---\n".join(map(json.dumps, documents(model, 3, 4, "blake3"))))
    manifest = load(tmp_path / "job.yaml")
    assert len(manifest.silos) == 3
    spec = manifest.job.spec
    assert spec.digest_algorithm == "blake3"
    module = build_module(spec.model, spec.data, 0, spec.task)
    assert sum(tensor.numel() for tensor in module.state_dict().values()) == model.numbers


def test_a_light_trainer_changes_the_model_or_nobody_would_fetch_the_next_one() -> None:
    model = {"weight": np.ones((3, 2), np.float32), "bias": np.zeros(2, np.float32)}
    train = SiloTask("train", "train", 1, 1, 2, {"model": model}, {})
    tensors = Echo().run(train, State()).tensors
    assert tensors["weight"] is model["weight"]
    assert (tensors["bias"] == 1).all()
    assert tensors["bias"].dtype == np.float32
    assert Echo().run(replace(train, step="evaluate"), State()).tensors == {}


def test_files_are_called_after_the_load() -> None:
    loads = [Load(SentModel.of(megabytes, 8), 4, 1, 4) for megabytes in (4096, 10, 2.5)]
    assert [results.name_of(one) for one in loads] == ["4x4096", "4x10", "4x2.5"]


def test_silos_are_shared_out_evenly_and_no_process_is_left_without() -> None:
    assert shared_out(["a", "b", "c", "d", "e"], 2) == [["a", "c", "e"], ["b", "d"]]
    assert shared_out(["a"], 3) == [["a"]]


def test_only_updates_that_train_count_as_accepted(tmp_path: Path) -> None:
    lines = [
        {"round": 1, "phase": "train", "updates": {"r00001-train-s0": "a", "r00001-train-s1": "b"}},
        {"round": 2, "phase": "train", "updates": {"r00002-train-s0": "a", "r00002-evaluate-s0": "b"}},
    ]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert accepted_updates(tmp_path / "history.jsonl") == 3


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.function)
def test_every_step_names_a_function_that_the_programs_have(step: steps.Step) -> None:
    assert resolve_function(step.function) is not None, (
        "name the function that does it now in benchmarks/transport/steps.py"
    )


class Programs:
    """Stands for a program's own functions."""

    async def upload(self, seconds: float) -> str:
        """Wait twice and answer `sent`."""
        await asyncio.sleep(0)
        await asyncio.sleep(seconds)
        return "sent"

    def refuse(self) -> None:
        """Fail with a ValueError."""
        raise ValueError("refused")

    async def hand_over(self) -> None:
        """Fail here, and in a thread."""
        for refusing in (asyncio.to_thread(self.refuse), self.refuse_here()):
            with suppress(ValueError):
                await refusing

    async def refuse_here(self) -> None:
        """Fail in the event loop's thread."""
        self.refuse()


def test_functions_are_recorded_and_do_what_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_here = (
        steps.Step("guards", "upload", f"{__name__}:Programs.upload"),
        steps.Step("guards", "refuse", f"{__name__}:Programs.refuse"),
        steps.Step("guards", "gone", f"{__name__}:Programs.gone"),
        steps.Step("aggregator", "other", f"{__name__}:run"),
    )
    monkeypatch.setattr(steps, "STEPS", of_here)
    for name in ("upload", "refuse"):
        monkeypatch.setattr(Programs, name, getattr(Programs, name))  # put back at the end
    recorder = Recorder("guards", tmp_path)
    recorder.install(WATERFALL)

    async def upload_twice() -> Sequence[Any]:
        cancelled = asyncio.create_task(Programs().upload(60))
        await asyncio.sleep(0)
        cancelled.cancel()
        return await asyncio.gather(Programs().upload(0), cancelled, return_exceptions=True)

    sent, cancelled = asyncio.run(upload_twice())
    assert (sent, type(cancelled)) == ("sent", asyncio.CancelledError)
    with pytest.raises(ValueError, match="refused"):
        Programs().refuse()
    recorder.write()
    recorder.write()
    found = read_records(tmp_path)
    assert sorted(one.label for one in found) == ["refuse", "upload", "upload"]
    assert all(one.began <= one.ended and one.cpu >= 0 for one in found)


def test_a_receipt_is_timed_from_the_last_byte_of_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    @asynccontextmanager
    async def request(_: object, _method: str, _path: str, _headers: Any, data: Any) -> AsyncIterator[str]:
        if not isinstance(data, bytes):
            async for _piece in data:
                await asyncio.sleep(0.01)
                taken.append(time.monotonic())
        await asyncio.sleep(0.01)
        answered.append(time.monotonic())
        yield "receipt"

    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"a", b"b", b"c"):
            yield piece

    async def send() -> None:
        for body in (pieces(), b"small"):
            async with HttpsClient.request(None, "PATCH", "/", {}, body) as answer:  # type: ignore[arg-type]
                assert str(answer) == "receipt"

    answered: list[float] = []
    monkeypatch.setattr(HttpsClient, "request", request)
    recorder = Recorder("guards", tmp_path)
    recorder.install(steps.ACKNOWLEDGEMENTS)
    asyncio.run(send())
    recorder.write()
    (found,) = read_records(tmp_path)
    assert (found.label, len(taken)) == (RECEIPT.label, 3)
    assert taken[-1] <= found.began < answered[0] <= found.ended < answered[1]


def test_a_step_in_a_thread_of_its_own_has_cpu_seconds_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_here = tuple(
        steps.Step("guards", name, f"{__name__}:Programs.{name}") for name in ("refuse", "hand_over")
    )
    monkeypatch.setattr(steps, "STEPS", of_here)
    for name in ("refuse", "hand_over"):
        monkeypatch.setattr(Programs, name, getattr(Programs, name))  # put back at the end
    recorder = Recorder("guards", tmp_path)
    recorder.install(WATERFALL)
    asyncio.run(Programs().hand_over())
    recorder.write()
    found = sorted(read_records(tmp_path), key=lambda one: one.ended)
    assert [(one.label, one.nested) for one in found] == [
        ("refuse", False),
        ("refuse", True),
        ("hand_over", False),
    ]


def test_the_waterfall_is_of_the_round_of_median_length_and_cut_at_its_beginning(tmp_path: Path) -> None:
    measured = replace(run(FEDSILO, 9.0, 5.0, 1.0), roles={"guards": replace(USE, cpu=[9.0, 2.0, 1.0])})
    records = [
        RecordedCall("guards", UPLOAD.label, 108.0, 110.5, 0.5, "1.1"),
        RecordedCall("guards", UPLOAD.label, 111.0, 112.0, 0.25, "2.1"),
        RecordedCall("guards", UPLOAD.label, 113.0, 114.5, 4.0, "2.1"),
        RecordedCall("guards", "  download, with its check", 110.0, 111.0, 0.75, "1.1", nested=True),
    ]
    found = steps_of_round(records, measured)
    assert (found.number, found.began, found.seconds, len(found.found)) == (1, 109.0, 5.0, 3)
    lines = steps_table(found, measured).splitlines()[4:]
    assert lines == [
        "| guards | &nbsp;&nbsp;download, with its check | 1 | 1.00 | 1.00 | 1.00 | 0.75 |",
        f"| guards | {UPLOAD.label} | 2 | 0.00 | 1.50 | 2.50 | 0.75 |",
        "| guards | everything else |  |  |  |  | 1.25 |",
    ]
    draw_steps(found, tmp_path / "steps.png")
    assert (tmp_path / "steps.png").stat().st_size > 1000


@pytest.mark.parametrize("kind", ["tls", "sha256", "blake3", "sha256-isolated", "blake3-isolated"])
def test_a_floor_sends_the_model_down_and_up(tmp_path: Path, kind: str) -> None:
    authority, size, port = make_authority(), 3_000_000, free_port()
    certificate, key = issue_server(authority, ["127.0.0.1"])
    for name, content in (("server.crt", certificate), ("server.key", key), ("ca.crt", authority.cert_pem)):
        (tmp_path / name).write_bytes(content)
    server = FloorServer(tmp_path, kind, silos=2, rounds=2, size=size)
    model = np.arange(size // 4, dtype=np.float32)
    (tmp_path / "model").write_bytes(model.tobytes())
    (tmp_path / START).touch()
    threads = [threading.Thread(target=server.serve, args=(port,))]
    for name in ("s0", "s1"):
        threads.append(threading.Thread(target=take_part, args=(tmp_path, name, kind, 2, size, port)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (tmp_path / "rounds").read_text() == "\n\n"
    assert (tmp_path / "model").read_bytes() == model.tobytes()
    for name in ("update-0", "update-1"):
        update = (tmp_path / name).read_bytes()
        assert len(update) == size
        assert (update == model.tobytes()) is (kind != "tls")
    files = {path.name for path in tmp_path.glob("silo-s1*")}
    assert ("silo-s1.update" in files) is kind.endswith("-isolated")
    assert (tmp_path / "silo-s1").exists() is (kind != "tls")


def test_the_checked_floor_looks_at_every_number() -> None:
    numbers = np.ones(1000, np.float32)
    require_finite(memoryview(numbers.tobytes()))
    numbers[-1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        require_finite(memoryview(numbers.tobytes()))
