"""Decisions about single objects on their pages: the verb decides, and only who may take them sees how."""

from collections.abc import Callable

from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import User
from retention import dispositions
from retention.models import Bucket, Disposition, ObjectVersion, Tenant
from tests import world
from tests.web import quick_pages, url  # noqa: F401


def test_a_single_object_is_exempted_extended_and_reclassified_on_its_page(
    tenant: Tenant, bucket: Bucket, manager: User, client: Client
) -> None:
    row = world.version(bucket, tenant, "o/1")
    client.force_login(manager)
    shown = client.get(url(ObjectVersion, "change", row.pk)).content.decode()
    pages = {verb: url(ObjectVersion, verb, row.pk) for verb in ("exempt", "extend", "reclassify")}
    assert all(page in shown for page in pages.values())
    assert all("Your decision" in client.get(page).content.decode() for page in pages.values())
    assert "This field is required." in client.post(pages["exempt"], {"reason": " "}).content.decode()
    assert client.post(pages["exempt"], {"reason": "Jubilee"}).status_code == 302
    passed = {"reason": "Audit", "until_0": "2020-01-01", "until_1": "00:00"}
    assert "has passed: extend to a time that is still to come" in client.post(pages["extend"], passed).content.decode()
    assert client.post(pages["extend"], passed | {"until_0": "2999-01-01"}).status_code == 302
    assert 'value="*"' in client.post(pages["reclassify"], {"reason": "R", "retention_class": "*"}).content.decode()
    assert client.post(pages["reclassify"], {"reason": "R", "retention_class": " audio"}).status_code == 302
    row.refresh_from_db()
    assert row.retention_class == " audio"
    made = list(Disposition.objects.order_by("pk"))
    assert [(each.kind, each.by) for each in made] == [(kind, manager) for kind in ("exempt", "extend", "reclassify")]
    assert made[1].until == world.EPOCH.replace(year=2999)
    shown = client.get(url(ObjectVersion, "change", row.pk)).content.decode()
    assert all(url(Disposition, "change", each.pk) in shown for each in made)


def test_a_disposition_is_ended_on_its_page_and_the_list_narrows(
    tenant: Tenant, bucket: Bucket, manager: User, client: Client, person: Callable[..., User]
) -> None:
    rows = [world.version(bucket, tenant, f"o/{n}") for n in range(2)]
    dispositions.exempt([row.pk for row in rows], by=manager, reason="Jubilee")
    first, second = Disposition.objects.order_by("object_version")
    client.force_login(manager)
    page = url(Disposition, "end", first.pk)
    assert page in client.get(url(Disposition, "change", first.pk)).content.decode()
    assert "o/0" in client.get(page).content.decode()
    assert client.post(page, {"reason": "Over"}).status_code == 302
    assert page not in client.get(url(Disposition, "change", first.pk)).content.decode()
    assert "ended already" in client.post(page, {"reason": "Again"}).content.decode()
    for query, expected in (
        ({"state": "in_force"}, [second]),
        ({"state": "ended"}, [first]),
        ({"kind__exact": "extend"}, []),
        ({"q": "o/1"}, [second]),
    ):
        assert list(client.get(url(Disposition, "changelist"), query).context["cl"].queryset) == expected, query

    client.force_login(person("operator", roles.OPERATOR))
    assert client.post(url(Disposition, "end", second.pk), {"reason": "R"}).status_code == 403
    for verb in ("exempt", "extend", "reclassify"):
        address = url(ObjectVersion, verb, rows[0].pk)
        assert client.post(address, {"reason": "R"}).status_code == 403
        assert address not in client.get(url(ObjectVersion, "change", rows[0].pk)).content.decode()
