"""`helm test`: try to reach the API server until this pod cannot any more.

Network policies reach a new pod a moment after its first process has started, and never where the network plug-in knows
none. Argument: seconds to try (60).
"""

import os
import socket
import sys
import time


def main(patience="60"):
    """The exit code: 0 as soon as the pod cannot get out, 1 when time is up."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    end = time.monotonic() + float(patience)
    while reaches(host, int(port)):
        if time.monotonic() > end:
            print(
                f"this pod reaches {host}:{port}, which no network policy permits: the cluster's network plug-in "
                "does not enforce them. Trainers will refuse to start (PolicyRefused). Install one that does."
            )
            return 1
        time.sleep(1)
    print(f"this pod cannot reach {host}:{port}: network policies are enforced")
    return 0


def reaches(host, port):
    """Whether a connection comes about within two seconds."""
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
