"""`helm test`: read a Silo from the API server until its key is published.

Arguments: namespace, name, seconds to try (60), directory of the account (the pod's own).
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def main(namespace, name, patience="60", account=ACCOUNT):
    """The exit code: 0 as soon as the Silo is ready, 1 when time is up."""
    end = time.monotonic() + float(patience)
    while True:
        ready, said = look(namespace, name, Path(account))
        if ready or time.monotonic() > end:
            print(f"Silo {namespace}/{name}: {said}")
            return 0 if ready else 1
        time.sleep(1)


def look(namespace, name, account):
    """Whether the Silo is ready, and why or why not."""
    try:
        status = read(namespace, name, account).get("status") or {}
    except urllib.error.HTTPError as error:
        return False, f"the API server says: {json.load(error).get('message', error.reason)}"
    except OSError as error:
        return False, f"the API server does not answer: {error}"
    found = [each for each in status.get("conditions", []) if each["type"] == "Ready"]
    if not found:
        return False, "no operator has looked at it; is one running, with rights in this namespace?"
    return found[0]["status"] == "True", found[0]["message"]


def read(namespace, name, account):
    """The Silo, read with the account's token."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    path = f"/apis/fedsilo.io/v1alpha1/namespaces/{namespace}/silos/{name}"
    token = (account / "token").read_text()
    request = urllib.request.Request(
        f"https://{address}:{port}{path}", headers={"Authorization": f"Bearer {token}"}
    )
    trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    # Python 3.13 asks of certificates what many clusters' authorities have not got.
    trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with urllib.request.urlopen(request, timeout=5, context=trusted) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
