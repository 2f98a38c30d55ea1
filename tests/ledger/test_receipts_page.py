"""docs/receipts.md says what receipts hold, and its lines of Python verify one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ledger import receipts
from ledger.models import Receipt
from tests.ledger.acting import build
from tests.ledger.parking import deleted
from webhooks.models import OutboxEvent

PAGE = Path("docs/receipts.md")


@pytest.mark.django_db
def test_the_page_names_every_member(tmp_path: Path) -> None:
    deleted(build())
    body = json.loads(bytes(Receipt.objects.get().body))
    page = PAGE.read_text(encoding="utf-8")
    members = {*body, *body["targets"][0], *body["policy"], *body["manifest"], *body["approval"], *body["why"]}
    assert {member for member in members if f"`{member}`" not in page} == set()


@pytest.mark.django_db
@pytest.mark.parametrize("forged", [False, True])
def test_the_lines_of_the_page_verify_a_receipt(forged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = build()
    world.put("clips/Müller.mp4", asset="mueller")
    world.run()
    world.drain()
    receipt = Receipt.objects.get()
    locator = receipt.locators.get()
    event = json.loads(bytes(OutboxEvent.objects.get(type="media.deleted").body))
    (tmp_path / "receipt.json").write_bytes(bytes(receipt.body))
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / PAGE).read_text("utf-8"), re.DOTALL)
    known: dict[str, Any] = {
        "digest": event["data"]["receipt_sha256"],
        "bucket": locator.bucket,
        "key": "clips/Someone else.mp4" if forged else locator.key,
        "version_id": locator.version_id,
        "salt": receipts.salt(world.tenant.pk),
    }
    if forged:
        with pytest.raises(AssertionError):
            exec(lines, known)  # noqa: S102 - the page's own lines
    else:
        exec(lines, known)  # noqa: S102
