"""Patterns of texts in a document, and what each means, in words for people."""

from __future__ import annotations

RFC1035_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
RFC1123_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
REGISTRY = r"^(localhost|[^/]*[.:][^/]*)/"
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
RFC1123_SUBDOMAIN = rf"^{_PART}([.]{_PART})*$"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY = rf"^({_PART}([.]{_PART})*/)?{_NAME}$"
LABEL_VALUE = rf"^({_NAME})?$"
_PATH_PART = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_HOST = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
IMAGE = (
    rf"^({_HOST}([.]{_HOST})*(:[0-9]{{1,5}})?/)?{_PATH_PART}(/{_PATH_PART})*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha(256:[0-9a-f]{64}|512:[0-9a-f]{128}))?$"
)
IMAGE_BY_DIGEST = r"^[a-z0-9][-a-zA-Z0-9._:/]*@sha256:[0-9a-f]{64}$"
HTTPS_URL = r"^https://[^\s/]+(/\S*)?$"
TRACKING_URL = r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$"
EXPERIMENT = r"^[A-Za-z0-9_./@ -]+$"
REGISTERED_MODEL = r"^[A-Za-z0-9_. -]+$"
IP_ADDRESS = r"^[0-9a-fA-F:.]+$"
SHA256 = r"^[0-9a-f]{64}$"
PUBLIC_KEY = r"^ed25519:[A-Za-z0-9+/]{43}=$"
QUALIFIED_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
TOKEN = r"^[!-~]+$"
CHECKSUM = r"^[0-9a-f]{16}$"
KEY_ID = r"^[0-9a-f]{16}$"
SIGNATURE = r"^[A-Za-z0-9+/]{86}==$"
REFERENCE = r"^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)*$"
TENSOR_PATTERN = r"^[!-~]+$"
DURATION = r"^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$"
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
QUANTITY = r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

FORMATS = {
    RFC1035_LABEL: "small letters, digits and '-', beginning with a letter (RFC 1035 label)",
    RFC1123_LABEL: "small letters, digits and '-' (RFC 1123 label)",
    RFC1123_SUBDOMAIN: "small letters, digits, '-' and '.' (RFC 1123 subdomain)",
    LABEL_KEY: "a label's key: at most 63 letters, digits, '-', '_' and '.', after a domain and '/' if it has one",
    LABEL_VALUE: "a label's value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at each end",
    IMAGE: "an image reference such as registry.example/fedsilo-trainer:0.1.0",
    IMAGE_BY_DIGEST: "an image by digest: name@sha256: and 64 hexadecimal digits",
    HTTPS_URL: "a URL that begins with https://",
    TRACKING_URL: "a URL that begins with https:// or http://, without user, password or query",
    EXPERIMENT: "letters, digits, spaces, '_', '-', '.', '@' and '/'",
    REGISTERED_MODEL: "letters, digits, spaces, '_', '-' and '.'",
    IP_ADDRESS: "an IP address",
    SHA256: "a SHA-256 in 64 small hexadecimal digits",
    PUBLIC_KEY: "'ed25519:' and the 32 bytes of the key in base64",
    QUALIFIED_NAME: "namespace/name, each in small letters, digits and '-'",
    TOKEN: "printable ASCII characters without spaces",
    CHECKSUM: "16 small hexadecimal digits",
    KEY_ID: "a key's id: the first 16 hexadecimal digits of its SHA-256",
    SIGNATURE: "the 64 bytes of a signature in base64",
    TENSOR_PATTERN: "printable ASCII characters without spaces, such as encoder.*",
    REFERENCE: "letters, digits, '-', '_' and '.', with ':' between parts",
}
"""What each pattern means, as text for people."""
