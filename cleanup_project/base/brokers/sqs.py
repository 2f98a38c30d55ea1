"""Amazon SQS as the broker: at least once. A message that a cluster has taken and not deleted comes again after `retry`."""

import os
from typing import TYPE_CHECKING, Final

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from django_q.brokers import Broker

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

CONNECT_SECONDS: Final = 2  # a person may wait for it
AGAIN: Final = 2  # attempts at most: for a connection that went stale

log = structlog.get_logger(__name__)


class Sqs(Broker):  # type: ignore[misc]  # django-q2 has no types
    """Opens its client in the process that uses it.

    django-q2's own opens one before it forks, and its children then speak through one TLS connection; and it knows no
    address but that of AWS.
    """

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self.opened: tuple[int, SQSClient, str] | None = None

    def queue(self, *, make: bool = False) -> "tuple[SQSClient, str]":
        """A client of this process, and the address of the queue. Raises QueueDoesNotExist, where it is not to be made."""
        if self.opened is None or self.opened[0] != os.getpid():
            self.opened = os.getpid(), opened(), ""
        pid, client, url = self.opened
        if not url:
            url = address(client, self.name(), make=make)
            self.opened = pid, client, url
        return client, url

    def name(self) -> str:
        """prefix-control or prefix-work."""
        queue = "control" if self.list_key == settings.Q_CLUSTER["name"] else self.list_key
        return f"{settings.Q_CLUSTER['sqs']['prefix']}-{queue}"

    def enqueue(self, task: str) -> str:
        client, url = self.queue()
        return client.send_message(QueueUrl=url, MessageBody=task)["MessageId"]

    def dequeue(self) -> list[tuple[str, str]]:
        """Called by a cluster alone, which makes the queue where there is none.

        Whoever only rings makes none: with a slip in BROKER, messages would be taken and nobody would ever ask for them.
        """
        client, url = self.queue(make=True)
        answer = client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=settings.Q_CLUSTER["bulk"],
            VisibilityTimeout=settings.Q_CLUSTER["retry"],
            WaitTimeSeconds=settings.Q_CLUSTER["sqs"]["wait_seconds"],
        )
        return [(each["ReceiptHandle"], each["Body"]) for each in answer.get("Messages", [])]

    def acknowledge(self, task_id: str) -> None:
        """What cannot be acknowledged comes again, or the queue has dropped it: an error would end the cluster's monitor."""
        try:
            client, url = self.queue()
            client.delete_message(QueueUrl=url, ReceiptHandle=task_id)
        except (ClientError, BotoCoreError) as error:
            log.warning("message not acknowledged", queue=self.name(), error=str(error))

    def fail(self, task_id: str) -> None:
        """Called for what was signed with another key, and would never be read."""
        self.acknowledge(task_id)

    def ping(self) -> bool:
        """Asked before a cluster starts, which should also start while SQS is away."""
        return True


def opened() -> "SQSClient":
    told = settings.Q_CLUSTER["sqs"]
    return boto3.Session().client(
        "sqs",
        region_name=told["region"],
        endpoint_url=told["endpoint_url"],
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=told["read_seconds"],
            retries={"total_max_attempts": AGAIN, "mode": "standard"},
        ),
    )


def address(client: "SQSClient", name: str, *, make: bool) -> str:
    try:
        return client.get_queue_url(QueueName=name)["QueueUrl"]
    except client.exceptions.QueueDoesNotExist:
        if not make:
            raise
        return client.create_queue(QueueName=name)["QueueUrl"]
