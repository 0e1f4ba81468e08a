"""Commands whose output is closed, loses its reader or lacks characters, and those that are interrupted at once."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedsilo.standard_streams import OutputFile, has_lost_reader
from tests.paths import ROOT

MANIFEST = str(ROOT / "examples" / "quickstart.yaml")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code(closed: str) -> None:
    for arguments, code in ((["validate", "-f", MANIFEST], 0), (["validate", "-f", "absent.yaml"], 2)):
        ended = _type(f'"$@" {closed}', arguments)
        assert ended.returncode == code
        assert "Traceback" not in ended.stderr


def test_what_a_command_opens_never_gets_the_number_of_a_closed_stream() -> None:
    code = (
        "import os, sys; from fedsilo.standard_streams import prepare_standard_streams;"
        "prepare_standard_streams(); print('lost', flush=True); assert os.pipe()[0] > 2;"
        "import subprocess; subprocess.run(['true'], check=True)"
    )
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-c", code], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_command_goes_on_without_its_reader() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as output:  # noqa: PTH123 (a descriptor has no path)
        command = [sys.executable, "-m", "fedsilo.cli.main", "validate", "-f", MANIFEST]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict"])
def test_characters_that_a_stream_lacks_are_replaced(encoding: str, tmp_path: Path) -> None:
    text = Path(MANIFEST).read_text()
    (tmp_path / "Köln 京.yaml").write_text(text)
    ended = _type('"$@"', ["validate", "-f", "Köln 京.yaml"], tmp_path, PYTHONIOENCODING=encoding)
    assert ended.returncode == 0
    assert ended.stdout.startswith("K?ln ?.yaml: valid" if "ascii" in encoding else "K\ufffdln ?.yaml: valid")


def test_output_waits_for_a_slow_reader_of_a_pipe_that_does_not_block() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    child = os.fork()
    if child == 0:
        os.close(reader)
        with io.BufferedWriter(OutputFile(writer)) as output:
            output.write(b"x" * 1_000_000)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as read:  # noqa: PTH123 (a descriptor has no path)
        assert len(read.read()) == 1_000_000
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_follows_something_learns_that_nobody_reads() -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as output:  # noqa: PTH123 (a descriptor has no path)
        assert not has_lost_reader(output)
        os.close(reader)
        assert has_lost_reader(output)


@pytest.mark.parametrize("raised", ["exec('raise KeyboardInterrupt')", "Ignored(); time.sleep(30)"])
def test_an_interruption_of_an_import_is_one_line_and_130(raised: str) -> None:
    """Also one that comes in a destructor, where Python ignores what is raised."""
    code = (
        "import sys, time\n"
        "class Ignored:\n"
        "    def __del__(self): raise KeyboardInterrupt\n"
        "class Interruption:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == 'fedsilo.errors': {raised}\n"
        "sys.meta_path.insert(0, Interruption())\n"
        "from fedsilo.cli.main import main\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "methods"], capture_output=True, text=True, timeout=20
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "fedsilo: interrupted\n")


def test_nothing_that_takes_time_is_imported_before_interruptions_are_caught() -> None:
    code = (
        "import sys; before = set(sys.modules); import fedsilo.cli.main; print(*(set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"argparse", "typing", "typing_extensions"} & set(ended.stdout.split())


def _type(
    line: str, arguments: list[str], folder: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of fedsilo as a shell does.

    :param line: what is typed; `"$@"` is the command.
    """
    surroundings: Mapping[str, str] = os.environ | environment
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "fedsilo.cli.main", *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=folder,
        env=surroundings,
    )
