"""What the cluster is made of: certificates, kubeconfigs, configurations, images, cache keys, DNS messages."""

from __future__ import annotations

import io
import json
import re
import ssl
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from hack.cluster import addons, binaries, go_builds, runtime
from hack.cluster.archive import write_image
from hack.cluster.certificates import Authority, write_control_plane, write_kubeconfig
from hack.cluster.errors import ClusterError


def test_certificates_name_user_groups_and_addresses_and_verify() -> None:
    authority = Authority("tester")
    pair = authority.issue("system:node:n", ["system:nodes"], ["10.244.0.1", "n"])
    cert = x509.load_pem_x509_certificate(pair.cert)
    assert cert.subject.rfc4514_string() == "CN=system:node:n,O=system:nodes"
    cert.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pair().cert))
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.244.0.1"]


def test_the_control_plane_s_files_are_usable_and_private_keys_private(tmp_path: Path) -> None:
    authority = write_control_plane(tmp_path / "pki", ["127.0.0.1"])
    context = ssl.create_default_context(cafile=str(tmp_path / "pki" / "ca.crt"))
    context.load_cert_chain(tmp_path / "pki" / "admin.crt", tmp_path / "pki" / "admin.key")
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "https://127.0.0.1:1", authority.pair().cert, authority.issue("a"))
    assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    private = [path, *(tmp_path / "pki").glob("*.key")]
    assert {file.stat().st_mode & 0o777 for file in private} == {0o600}


def test_an_image_holds_one_program_and_its_blobs_have_their_digests(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"#!")
    for archive in ("one.tar", "two.tar"):
        write_image(tmp_path / archive, "localhost/pause:1", program)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    (entry,) = json.loads(content["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/pause:1"
    manifest = json.loads(content["blobs/sha256/" + entry["digest"].partition(":")[2]])
    layer = content["blobs/sha256/" + manifest["layers"][0]["digest"].partition(":")[2]]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(member.name, member.mode) for member in tar] == [("pause", 0o755)]


@pytest.mark.parametrize("restricted", [True, False])
def test_containerd_s_configuration_is_toml_and_says_who_lowers_oom_scores(restricted: bool) -> None:
    text = runtime.configuration(Path("/cache/containerd"), "localhost/pause:1", restricted=restricted)
    document = tomllib.loads(text)
    cri = document["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is restricted
    assert cri["sandbox_image"] == "localhost/pause:1"
    assert document["root"] == "/cache/containerd"


@pytest.mark.parametrize("forward", [True, False])
def test_the_add_ons_are_manifests_with_everything_filled_in(forward: bool) -> None:
    text = addons.manifests("localhost/coredns:1", forward=forward)
    documents = list(yaml.safe_load_all(text))
    assert "$" not in text
    assert (
        "forward" in next(d for d in documents if d["kind"] == "ConfigMap")["data"]["Corefile"]
    ) is forward


def test_a_cache_key_changes_with_files_and_flags(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module a")
    keys = [binaries.key(tmp_path, ["-trimpath"]), binaries.key(tmp_path, [])]
    assert binaries.key(tmp_path, ["-trimpath"]) == keys[0]
    (tmp_path / "go.sum").write_text("")
    keys.append(binaries.key(tmp_path, ["-trimpath"]))
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "main.go").write_text("package main")
    keys.append(binaries.key(tmp_path, ["-trimpath"]))
    (tmp_path / "program").rename(tmp_path / "other")
    keys.append(binaries.key(tmp_path, ["-trimpath"]))
    assert len(set(keys)) == 5


def test_versions_come_from_go_mod() -> None:
    flags = binaries.linker_flags()
    assert "k8s.io/component-base/version.gitVersion=v1.36." in flags
    assert "helm.sh/helm/v4/internal/version.version=v4." in flags
    assert binaries.required_version("require a.b/c/v2 v2.1.0", "a.b/c/v2") == "v2.1.0"
    with pytest.raises(ClusterError, match=r"does not require a\.b/c;"):
        binaries.required_version("\ta.b/c/v2 v2.1.0\n", "a.b/c")


def test_each_process_of_kubernetes_is_a_name_that_the_program_knows() -> None:
    text = (binaries.MODULE / "kubernetes" / "main.go").read_text()
    assert tuple(sorted(re.findall(r'case "(\S+)":', text))) == binaries.KUBERNETES_PROCESSES


def test_the_cluster_s_dns_has_the_plugins_that_its_configurations_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that it lacks would be an error at its start, one too many costs work in every build."""
    named = set[str]()
    for institution in ("", "clinic"):
        monkeypatch.setattr(addons, "INSTITUTION", institution)
        manifests = yaml.safe_load_all(addons.manifests("localhost/coredns:1", forward=True))
        corefile = next(item for item in manifests if item["kind"] == "ConfigMap")["data"]["Corefile"]
        named |= set(re.findall(r"^ {4}(\w+)", corefile, re.MULTILINE))
    text = (binaries.MODULE / "coredns" / "main.go").read_text()
    assert set(re.findall(r"/plugin/(\w+)", text)) == named


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27rc1 linux/arm64", (1, 27)),
        ("", ()),
    ],
)
def test_go_s_version_is_compared_as_numbers(printed: str, version: tuple[int, ...]) -> None:
    assert go_builds.version_numbers(printed) == version


def test_a_dns_answer_counts_only_with_a_record_and_without_an_error() -> None:
    query = addons.dns_query("kubernetes.default")
    assert query[12:] == b"\x0akubernetes\x07default\x00\x00\x01\x00\x01"
    answer = b"\0\1\x84\0\0\1\0\1\0\0\0\0"
    assert addons.has_answer(answer)
    assert not addons.has_answer(query)  # a question
    assert not addons.has_answer(answer[:3] + b"\3" + answer[4:])  # NXDOMAIN
    assert not addons.has_answer(answer[:6] + b"\0\0" + answer[8:])  # no record
    assert not addons.has_answer(b"")


def test_a_build_says_how_much_of_it_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program in place of Go: it lists three packages, and compiles two of them slowly."""
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = list ]; then echo "go: downloading a.b/c v1.0.0" >&2; printf "a\\nb\\nc\\n"; '
        "else printf 'a\\nb\\n' >&2; sleep 0.3; fi\n"
    )
    go.chmod(0o755)
    (tmp_path / "go.mod").write_text("module a\n\nrequire (\n\ta.b/c v1.0.0\n\td.e/f v2.0.0 // indirect\n)\n")
    monkeypatch.setattr(go_builds, "find_go", lambda: go)
    monkeypatch.setattr(go_builds, "REPORT_SECONDS", 0.05)
    go_builds.build("tool", tmp_path, ["."], [], into=tmp_path)
    printed = capsys.readouterr()
    assert "tool: 2 of 3 packages compiled" in printed.out + printed.err
    assert go_builds.required_modules(tmp_path) == 2


def test_a_build_that_fails_shows_the_compiler_s_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'main.go:3: undefined: x' >&2; exit 1\n")
    go.chmod(0o755)
    (tmp_path / "go.mod").write_text("module a\n")
    monkeypatch.setattr(go_builds, "find_go", lambda: go)
    with pytest.raises(ClusterError, match=r"go list` in .* failed:\nmain\.go:3: undefined: x"):
        go_builds.build("tool", tmp_path, ["."], [], into=tmp_path)
