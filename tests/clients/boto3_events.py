"""Notifications of S3 in a queue of SQS take the place of validations."""

import json

import boto3

from _floe import BUCKET, ORIGIN_KEYS, check, pattern, run, until


def validations(rig):
    return rig.metric("floe_origin_requests_total", reason="validation")


def queue_of(rig):
    """A queue that hears of the bucket's changes; the settings that read it."""
    sqs = boto3.client(
        "sqs", endpoint_url=rig.origin_endpoint, region_name="us-east-1",
        aws_access_key_id=ORIGIN_KEYS[0], aws_secret_access_key=ORIGIN_KEYS[1],
    )
    url = sqs.create_queue(QueueName="floe")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    arn = attributes["Attributes"]["QueueArn"]
    rig.origin.put_bucket_notification_configuration(
        Bucket=BUCKET,
        NotificationConfiguration={
            "QueueConfigurations": [
                {"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
            ]
        },
    )
    rig.queue = (sqs, url)
    return f"""
[object]
consistency = "events"

[events]
queue = {json.dumps(url)}
"""


def events(rig):
    """Changes past the cache are heard of, and hits ask nothing."""
    sqs, url = rig.queue
    heard = lambda: rig.metric("floe_events_objects_total")
    get = lambda: rig.floe.get_object(Bucket=BUCKET, Key="a key+ü")["Body"].read()
    until("the queue is heard", lambda: rig.metric("floe_events_heard") == 1)
    for round_number in range(3):
        body = pattern(round_number, 100_000 + round_number)
        known = heard()
        rig.origin.put_object(Bucket=BUCKET, Key="a key+ü", Body=body)
        until(f"version {round_number} is served", lambda: get() == body)
        until("  its notification is heard of", lambda: heard() > known)
        check("  twice", get() == body)
        before = validations(rig)
        check("  and again", all(get() == body for _ in range(20)))
        check("  without a request to the origin", validations(rig) == before)
    check("no request to the queue failed", rig.metric("floe_events_queue_failures_total") == 0)
    counts = lambda: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    left = lambda: sum(int(counts()[f"ApproximateNumberOfMessages{kind}"]) for kind in ("", "NotVisible"))
    until("all messages are deleted", lambda: left() == 0)


run(events, settings=queue_of)
