"""What controllers may rely on, of a fake cluster and of a real API server alike.

A test class inherits `Contract` and gives two fixtures: `cluster`, and `namespace`, empty at the start of each test.
Of custom resources it uses Silos; all else is of kinds that every API server has.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from fedsilo.api.observed import Object, uid_of
from fedsilo_operator.cluster.interface import (
    CallRefused,
    Change,
    Cluster,
    ClusterError,
    Conflict,
    Event,
    FieldConflict,
    NotFound,
)
from fedsilo_operator.objects import (
    CONFIG_MAP,
    EVENT,
    JOB,
    SERVICE,
    SILO_KIND,
    Kind,
    Ref,
    labels_of,
    ref_of,
    suspend_managers,
)
from tests.contract_objects import condition, config_map, job, service, silo


def version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


async def next_changes(
    cluster: Cluster, start: str, count: int, namespace: str, kind: Kind = CONFIG_MAP, labels: str = ""
) -> list[Change]:
    """The next changes after a version, bookmarks left out."""
    found: list[Change] = []
    async with (
        asyncio.timeout(20),
        aclosing(cluster.watch(kind, start, namespace=namespace, labels=labels)) as watch,
    ):
        async for change in watch:
            found += [change] if change.type != "BOOKMARK" else []
            if len(found) == count:
                break
    return found


class Contract:
    """Inherited by one class per implementation."""

    async def test_an_object_is_made_and_read(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(config_map(namespace, data={"x": "1"}))
        read = await cluster.get(CONFIG_MAP, Ref(namespace, "a"))
        assert read["data"] == {"x": "1"}
        assert uid_of(read) == uid_of(made)
        assert (read["apiVersion"], read["kind"]) == ("v1", "ConfigMap")
        assert read["metadata"]["managedFields"]

    async def test_making_what_exists_is_a_conflict(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(config_map(namespace))
        with pytest.raises(Conflict, match='"a" already exists'):
            await cluster.create(config_map(namespace))

    async def test_what_is_not_there_is_not_found(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(NotFound, match='"none" not found'):
            await cluster.get(CONFIG_MAP, Ref(namespace, "none"))

    async def test_a_listing_selects(self, cluster: Cluster, namespace: str) -> None:
        for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"y": "1"})):
            await cluster.create(config_map(namespace, name, labels=labels))

        async def names(labels: str = "", fields: str = "") -> str:
            listing = await cluster.list(CONFIG_MAP, namespace=namespace, labels=labels, fields=fields)
            assert all(item["kind"] == "ConfigMap" and item["apiVersion"] == "v1" for item in listing.items)
            return "".join(item["metadata"]["name"] for item in listing.items)

        assert await names() == "abc"
        assert await names("x") == "ab"
        assert await names("!x") == "c"
        assert await names("x=1") == "a"
        assert await names("x!=1") == "bc"
        assert await names("x in (1, 2),x notin (1)") == "b"
        assert await names(fields="metadata.name=b") == "b"
        with pytest.raises(CallRefused):
            await names("((")

    async def test_a_listing_of_all_namespaces_has_ours(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(config_map(namespace))
        listing = await cluster.list(CONFIG_MAP)
        assert Ref(namespace, "a") in map(ref_of, listing.items)

    # Server-side apply.

    async def test_apply_makes_merges_and_removes(self, cluster: Cluster, namespace: str) -> None:
        await cluster.apply(config_map(namespace, data={"x": "1", "y": "1"}), manager="one")
        await cluster.apply(config_map(namespace, data={"z": "1"}, labels={"l": "v"}), manager="two")
        obj = await cluster.apply(config_map(namespace, data={"x": "2"}), manager="one")
        assert obj["data"] == {"x": "2", "z": "1"}
        assert labels_of(obj) == {"l": "v"}

    async def test_apply_never_takes_a_field(self, cluster: Cluster, namespace: str) -> None:
        await cluster.apply(config_map(namespace, data={"x": "1"}), manager="one")
        with pytest.raises(FieldConflict, match=r'conflict with "one".*\.data\.x'):
            await cluster.apply(config_map(namespace, data={"x": "2"}), manager="two")
        shared = await cluster.apply(config_map(namespace, data={"x": "1"}), manager="two")
        await cluster.apply(config_map(namespace), manager="one")
        assert (await cluster.get(CONFIG_MAP, ref_of(shared)))["data"] == {"x": "1"}, (
            "the other one wants it still"
        )

    async def test_what_was_created_is_not_taken_by_an_apply(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(config_map(namespace, data={"x": "1"}))
        with pytest.raises(FieldConflict):
            await cluster.apply(config_map(namespace, data={"x": "2"}), manager="fedsilo-operator")

    async def test_applying_the_same_writes_nothing(self, cluster: Cluster, namespace: str) -> None:
        first = await cluster.apply(config_map(namespace, data={"x": "1"}), manager="one")
        second = await cluster.apply(config_map(namespace, data={"x": "1"}), manager="one")
        assert version(first) == version(second)

    async def test_apply_to_another_identity_is_a_conflict(self, cluster: Cluster, namespace: str) -> None:
        await cluster.apply(config_map(namespace), manager="one")
        with pytest.raises(Conflict):
            await cluster.apply(config_map(namespace, data={"x": "1"}, uid="another"), manager="one")

    async def test_apply_with_an_identity_makes_nothing(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(Conflict):
            await cluster.apply(config_map(namespace, uid="gone"), manager="one")
        assert not (await cluster.list(CONFIG_MAP, namespace=namespace)).items

    async def test_apply_to_an_old_version_is_a_conflict(self, cluster: Cluster, namespace: str) -> None:
        old = await cluster.apply(config_map(namespace, data={"x": "1"}), manager="one")
        now = await cluster.apply(config_map(namespace, data={"x": "2"}), manager="one")
        with pytest.raises(Conflict):
            await cluster.apply(
                config_map(namespace, data={"x": "3"}, resourceVersion=version(old)), manager="one"
            )
        await cluster.apply(
            config_map(namespace, data={"x": "3"}, resourceVersion=version(now)), manager="one"
        )

    async def test_an_immutable_config_map_is_immutable(self, cluster: Cluster, namespace: str) -> None:
        await cluster.apply(config_map(namespace, data={"x": "1"}) | {"immutable": True}, manager="one")
        with pytest.raises(CallRefused, match="immutable"):
            await cluster.apply(config_map(namespace, data={"x": "2"}) | {"immutable": True}, manager="one")

    async def test_the_template_of_a_job_is_immutable(self, cluster: Cluster, namespace: str) -> None:
        await cluster.apply(job(namespace), manager="one")
        with pytest.raises(CallRefused, match="immutable"):
            await cluster.apply(job(namespace, image="other"), manager="one")

    async def test_a_field_of_a_job_can_have_its_own_manager(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.apply(job(namespace), manager="one")
        assert made["metadata"]["generation"] == 1
        only = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {key: made["metadata"][key] for key in ("namespace", "name", "uid")},
        }
        for suspended, generation in ((True, 2), (True, 2), (False, 3)):
            obj = await cluster.apply(only | {"spec": {"suspend": suspended}}, manager="switch")
            assert obj["spec"]["suspend"] is suspended
            assert obj["metadata"]["generation"] == generation
            assert obj["spec"]["template"]["spec"]["containers"][0]["image"] == "i"

    async def test_a_manager_that_leaves_its_field_out_gives_it_up(
        self, cluster: Cluster, namespace: str
    ) -> None:
        made = await cluster.apply(job(namespace), manager="one")
        only = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {key: made["metadata"][key] for key in ("namespace", "name", "uid")},
        }
        obj = await cluster.apply(only | {"spec": {"suspend": True}}, manager="switch")
        assert suspend_managers(obj) == ["switch"]
        obj = await cluster.apply(only, manager="switch")
        assert obj["spec"]["suspend"] is False, "its default"
        assert suspend_managers(obj) == []
        assert obj["spec"]["template"]["spec"]["containers"][0]["image"] == "i"
        obj = await cluster.merge(only | {"spec": {"suspend": True}})
        assert suspend_managers(obj) == ["fedsilo-operator"]

    async def test_labels_do_not_raise_the_generation(self, cluster: Cluster, namespace: str) -> None:
        await cluster.apply(job(namespace), manager="one")
        labelled = job(namespace)
        labelled["metadata"]["labels"] = {"x": "1"}
        assert (await cluster.apply(labelled, manager="one"))["metadata"]["generation"] == 1

    # Merge patches.

    async def test_a_merge_changes_and_removes_what_another_wrote(
        self, cluster: Cluster, namespace: str
    ) -> None:
        made = await cluster.create(config_map(namespace, data={"x": "1", "y": "1"}, labels={"l": "v"}))
        obj = await cluster.merge(
            config_map(namespace, data={"x": "2", "y": None, "z": "3"}, resourceVersion=version(made))
        )
        assert obj["data"] == {"x": "2", "z": "3"}
        assert labels_of(obj) == {"l": "v"}
        assert (await cluster.get(CONFIG_MAP, ref_of(made)))["data"] == obj["data"]

    async def test_a_merge_into_another_version_or_identity_is_a_conflict(
        self, cluster: Cluster, namespace: str
    ) -> None:
        old = await cluster.create(config_map(namespace, data={"x": "1"}))
        await cluster.merge(config_map(namespace, data={"x": "2"}, uid=uid_of(old)))
        for precondition in ({"resourceVersion": version(old)}, {"uid": "another"}):
            with pytest.raises(Conflict):
                await cluster.merge(config_map(namespace, data={"x": "3"}, **precondition))
        assert (await cluster.get(CONFIG_MAP, ref_of(old)))["data"] == {"x": "2"}

    async def test_a_merge_makes_nothing(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(NotFound):
            await cluster.merge(config_map(namespace, data={"x": "1"}))

    # The status subresource.

    async def test_spec_and_status_are_written_separately(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.apply(service(namespace), manager="one")
        await cluster.apply(condition(made, "A", "True"), manager="one", status=True)
        both = await cluster.apply(service(namespace, status={"conditions": []}), manager="one")
        assert [found["type"] for found in both["status"]["conditions"]] == ["A"], (
            "a spec says nothing of status"
        )
        smuggled = condition(made, "A", "True") | {"spec": {"ports": [{"port": 2}]}}
        after = await cluster.apply(smuggled, manager="one", status=True)
        assert [port["port"] for port in after["spec"]["ports"]] == [1], "a status says nothing of spec"

    async def test_conditions_of_two_managers_stand_together(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.apply(service(namespace), manager="one")
        await cluster.apply(condition(made, "A", "True"), manager="one", status=True)
        both = await cluster.apply(condition(made, "B", "True"), manager="two", status=True)
        assert {found["type"] for found in both["status"]["conditions"]} == {"A", "B"}
        one = await cluster.apply(condition(made, "C", "True"), manager="one", status=True)
        assert {found["type"] for found in one["status"]["conditions"]} == {"B", "C"}

    async def test_what_somebody_has_written_into_a_status_is_taken_back(
        self, cluster: Cluster, namespace: str
    ) -> None:
        made = await cluster.apply(service(namespace), manager="one")
        await cluster.apply(condition(made, "A", "True"), manager="one", status=True)
        await cluster.apply(condition(made, "A", "False"), manager="two", status=True)
        (mine,) = (await cluster.apply(condition(made, "A", "True"), manager="one", status=True))["status"][
            "conditions"
        ]
        assert mine["status"] == "True"

    async def test_the_status_of_what_is_gone_is_not_written(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.apply(service(namespace), manager="one")
        await cluster.delete(SERVICE, ref_of(made))
        with pytest.raises(ClusterError) as caught:
            await cluster.apply(condition(made, "A", "True"), manager="one", status=True)
        assert isinstance(caught.value, Conflict | NotFound)
        again = await cluster.apply(service(namespace), manager="one")
        with pytest.raises(Conflict):
            await cluster.apply(condition(made, "A", "True"), manager="one", status=True)
        assert uid_of(again) != uid_of(made)

    async def test_a_custom_status_goes_by_the_version_and_not_by_the_identity(
        self, cluster: Cluster, namespace: str
    ) -> None:
        earlier = await cluster.apply(silo(namespace), manager="one")
        await cluster.delete(SILO_KIND, ref_of(earlier))
        for metadata in ({}, {"resourceVersion": version(earlier)}):
            with pytest.raises(NotFound):
                await cluster.apply(
                    condition(earlier, "Ready", "True", **metadata), manager="one", status=True
                )
        now = await cluster.apply(silo(namespace), manager="one")
        with pytest.raises(Conflict):
            await cluster.apply(
                condition(earlier, "Ready", "True", resourceVersion=version(earlier)),
                manager="one",
                status=True,
            )
        written = await cluster.apply(condition(earlier, "Ready", "True"), manager="one", status=True)
        assert uid_of(written) == uid_of(now), "the uid was taken no notice of"
        await cluster.apply(
            condition(now, "Ready", "False", resourceVersion=version(written)), manager="one", status=True
        )

    async def test_a_service_gets_an_address_and_keeps_it(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.apply(service(namespace), manager="one")
        address = made["spec"]["clusterIP"]
        assert address
        await cluster.delete(SERVICE, ref_of(made))
        spec = {"ports": [{"port": 1}], "clusterIP": address}
        again = await cluster.apply(service(namespace, spec=spec), manager="one")
        assert again["spec"]["clusterIP"] == address

    # Deletion.

    async def test_deleting_twice_is_no_error(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(config_map(namespace))
        await cluster.delete(CONFIG_MAP, ref_of(made), uid=uid_of(made))
        await cluster.delete(CONFIG_MAP, ref_of(made), uid=uid_of(made))
        with pytest.raises(NotFound):
            await cluster.get(CONFIG_MAP, ref_of(made))

    async def test_only_the_identity_that_is_meant_is_deleted(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(config_map(namespace))
        with pytest.raises(Conflict):
            await cluster.delete(CONFIG_MAP, ref_of(made), uid="another")
        assert await cluster.get(CONFIG_MAP, ref_of(made))

    async def test_a_finalizer_holds_an_object(self, cluster: Cluster, namespace: str) -> None:
        held = await cluster.apply(config_map(namespace, finalizers=["fedsilo.io/x"]), manager="one")
        await cluster.delete(CONFIG_MAP, ref_of(held))
        await cluster.delete(CONFIG_MAP, ref_of(held))
        assert (await cluster.get(CONFIG_MAP, ref_of(held)))["metadata"]["deletionTimestamp"]
        with pytest.raises(CallRefused):
            await cluster.apply(config_map(namespace, finalizers=["fedsilo.io/y"]), manager="two")
        await cluster.apply(config_map(namespace, uid=uid_of(held)), manager="one")
        with pytest.raises(NotFound):
            await cluster.get(CONFIG_MAP, ref_of(held))

    # Watches.

    async def test_a_watch_goes_on_from_a_listing(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(config_map(namespace, "before"))
        start = (await cluster.list(CONFIG_MAP, namespace=namespace)).resource_version
        await cluster.apply(config_map(namespace, data={"x": "1"}), manager="one")
        changed = await cluster.apply(config_map(namespace, data={"x": "2"}), manager="one")
        await cluster.delete(CONFIG_MAP, ref_of(changed))
        changes = await next_changes(cluster, start, 3, namespace)
        assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED"]
        assert version(changes[1].object) == version(changed)
        assert int(version(changes[2].object)) > int(version(changed))
        assert all(change.object["kind"] == "ConfigMap" for change in changes)
        later = await next_changes(cluster, version(changes[0].object), 2, namespace)
        assert [change.type for change in later] == ["MODIFIED", "DELETED"]

    async def test_a_watch_waits_for_what_comes(self, cluster: Cluster, namespace: str) -> None:
        start = (await cluster.list(CONFIG_MAP, namespace=namespace)).resource_version
        waiting = asyncio.ensure_future(next_changes(cluster, start, 1, namespace))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await cluster.create(config_map(namespace))
        assert [change.type for change in await waiting] == ["ADDED"]

    async def test_what_no_longer_matches_is_deleted_to_a_watch(
        self, cluster: Cluster, namespace: str
    ) -> None:
        start = (await cluster.list(CONFIG_MAP, namespace=namespace)).resource_version
        for value in ("1", "2", "1"):
            await cluster.apply(config_map(namespace, labels={"x": value}), manager="one")
        changes = await next_changes(cluster, start, 3, namespace, labels="x=1")
        assert [change.type for change in changes] == ["ADDED", "DELETED", "ADDED"]

    # Events.

    async def test_an_event_that_repeats_is_counted(self, cluster: Cluster, namespace: str) -> None:
        about = await cluster.create(config_map(namespace))
        for message in ("first", "first", "second"):
            await cluster.event(Event(about, "Warning", "QuorumLost", message))
        events = (
            await cluster.list(EVENT, namespace=namespace, fields=f"involvedObject.uid={uid_of(about)}")
        ).items
        assert sorted((event["message"], event["count"]) for event in events) == [("first", 2), ("second", 1)]
        for event in events:
            assert (event["type"], event["reason"]) == ("Warning", "QuorumLost")
            assert event["involvedObject"]["name"] == "a"

    async def test_an_event_that_has_expired_is_written_anew(self, cluster: Cluster, namespace: str) -> None:
        about = await cluster.create(config_map(namespace))
        event = Event(about, "Normal", "Running", "round 1")
        await cluster.event(event)
        for found in (await cluster.list(EVENT, namespace=namespace)).items:
            await cluster.delete(EVENT, ref_of(found))
        await cluster.event(event)
        (found,) = (await cluster.list(EVENT, namespace=namespace)).items
        assert found["count"] == 1

    async def test_a_job_may_be_listed_by_kind(self, cluster: Cluster, namespace: str) -> None:
        await cluster.apply(job(namespace, suspend=True), manager="one")
        (found,) = (await cluster.list(JOB, namespace=namespace)).items
        assert found["spec"]["suspend"] is True
