"""Where a guard outside of the hub's own cluster may connect to: the hub, and nowhere else.

It stands inside the institution, and must not knock at what is reached from there only. Of the trust bundle only the
place is compared: which authority has to vouch for it is part of the proposal that is decided on, and a hub that renews
its certificate's authority needs no new invitations.
"""

from __future__ import annotations

from typing import Any


def leads_elsewhere(trust: Any, hub_url: str) -> str | None:
    """What is wrong with a SiloAgent's trust bundle that names another place than the hub, as a sentence; else None.

    :param trust: `spec.trust` as the hub says it, of whatever shape.
    :param hub_url: the hub's URL in the invitation.
    """
    if not isinstance(trust, dict):
        return "Its spec.trust is no trust bundle as a SiloAgent of this version has it."
    if trust.get("address") is not None:
        return "Its spec.trust.address is for the hub's own cluster only; the hub's name is looked up here."
    url = trust.get("url")
    if isinstance(url, str) and url.rstrip("/") == hub_url.rstrip("/"):
        return None
    return (
        "Its spec.trust.url is not the hub's URL of the invitation that is installed here. If the hub has another URL "
        "since, its office sends another invitation."
    )
