"""Claims about `pipe`: the first of equal lines passes, byte for byte, however it arrives."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's VmHWM")
def test_memory_does_not_grow_with_the_input() -> None:
    """Four million distinct lines peak no higher than one million: the filter and a chunk."""
    peaks = [_peak_bytes(lines) for lines in (1_000_000, 4_000_000)]
    assert peaks[1] - peaks[0] < 4 << 20  # the three million lines between them are 36 MB


def _peak_bytes(lines: int) -> int:
    """Run the command over `lines` lines and return the most memory its process ever held."""
    program = (
        "import sys\n"
        "from streamdedup.cli import main\n"
        "main(['pipe', '--capacity', '4M', '--error-rate', '0.1', '--on-full', 'warn'])\n"
        "peak = next(l for l in open('/proc/self/status') if l.startswith('VmHWM'))\n"
        "print(peak.split()[1], file=sys.stderr)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for start in range(0, lines, 100_000):
            process.stdin.write(b"".join(b"%011d\n" % i for i in range(start, start + 100_000)))
        process.stdin.close()
        report = process.stderr.read().split(b"\n")
    assert b"%s lines" % f"{lines:,}".encode() in report[0]
    return int(report[-2]) * 1024
