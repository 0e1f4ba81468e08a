"""An installation's wait until the API server serves a kind that the release has just defined.

It asks as Helm does. Of several API servers each answers from its own cache, and every question may reach another one,
so that one answer is not enough.

Arguments: group, version, kind, seconds to try (240, less than Helm waits), directory of the account (the pod's own).
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
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
IN_A_ROW = 10


def main(group, version, kind, patience="240", account=ACCOUNT):
    """The exit code: 0 as soon as the kind is served, 1 when time is up."""
    end = time.monotonic() + float(patience)
    answers = 0
    while True:
        served, said = look(group, version, kind, Path(account))
        answers = answers + 1 if served else 0
        if answers == IN_A_ROW or (not served and time.monotonic() > end):
            print(f"{kind} in {group}/{version}: {said}")
            return 0 if served else 1
        time.sleep(0.1)


def look(group, version, kind, account):
    """Whether the kind is served, and what the API server says."""
    try:
        groups = read(account)["items"]
    except urllib.error.HTTPError as error:
        return False, f"the API server says: {json.load(error).get('message', error.reason)}"
    except OSError as error:
        return False, f"the API server does not answer: {error}"
    kinds = {
        (each["metadata"]["name"], one["version"], resource.get("responseKind", {}).get("kind"))
        for each in groups
        for one in each["versions"]
        for resource in one.get("resources", [])
    }
    if (group, version, kind) in kinds:
        return True, "served"
    return False, f"not served; what does `kubectl describe crd` say of its definition in {group}?"


def read(account):
    """The groups that the API server serves, read with the account's token."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    headers = {"Authorization": f"Bearer {(account / 'token').read_text()}", "Accept": DISCOVERY}
    request = urllib.request.Request(f"https://{address}:{port}/apis", headers=headers)
    trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    # Python 3.13 asks of certificates what many clusters' authorities have not got.
    trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with urllib.request.urlopen(request, timeout=5, context=trusted) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
