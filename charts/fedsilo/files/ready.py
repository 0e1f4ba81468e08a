"""`helm test`: ask every operator behind a headless Service for /readyz until all have answered that they are ready.

Arguments: host, port, number of operators, seconds to try (60).
"""

import socket
import sys
import time
import urllib.error
import urllib.request


def main(host, port, replicas, patience="60"):
    """The exit code: 0 as soon as all are ready, 1 when time is up."""
    end = time.monotonic() + float(patience)
    while True:
        said = {address: ask(address, port) for address in addresses(host, port)}
        ready = [address for address, answer in said.items() if answer == "ok"]
        if len(ready) == len(said) >= int(replicas):
            print(f"{len(ready)} operators are ready: {', '.join(ready)}")
            return 0
        if time.monotonic() > end:
            print(
                f"{len(ready)} of {replicas} operators are ready; look at the logs of the others",
                *said.items(),
            )
            return 1
        time.sleep(1)


def addresses(host, port):
    """Of all pods, in order; none while the name is not known yet."""
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    except socket.gaierror:
        return []


def ask(address, port):
    """What one operator says about itself, or why it says nothing."""
    host = f"[{address}]" if ":" in address else address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/readyz", timeout=5) as answer:
            return answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()
    except OSError as error:
        return f"no answer: {error}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
