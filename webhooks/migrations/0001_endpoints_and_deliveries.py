import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.lookups
import webhooks.models
from django.conf import settings
from django.db import migrations, models

from cleanup_project.base import sqlfiles


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tenant', models.CharField(max_length=63)),
                ('round', models.PositiveIntegerField(default=0, help_text="0: owed since the event; else the redelivery's number.")),
                ('sequence', models.BigIntegerField()),
                ('detailed', models.BooleanField(db_default=False, help_text='The endpoint asked for object keys when the event was written: it gets that body.')),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('dead', 'Dead'), ('cancelled', 'Cancelled')], default='pending', max_length=9)),
                ('due_at', webhooks.models.DueField(help_text='Empty: it waits behind an earlier event of its subject.')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('lease_token', models.BigIntegerField(default=0)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('last_status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('last_class', models.CharField(blank=True, max_length=32)),
                ('last_error', models.CharField(blank=True, max_length=500)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('cancel_reason', models.TextField(blank=True)),
                ('requested_by', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'ordering': ['-id'],
                'indexes': [
                    models.Index(fields=['tenant', '-id'], name='delivery_by_tenant'),
                    models.Index(condition=models.Q(('state__in', ['dead', 'cancelled'])), fields=['state', '-id', 'tenant'], name='delivery_given_up'),
                    models.Index(condition=models.Q(('state', 'pending')), fields=['tenant', 'id'], name='delivery_owed'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(models.Q(('finished_at', None), ('state', 'pending')), models.Q(('finished_at__isnull', False), ('state__in', ['delivered', 'dead', 'cancelled'])), _connector='OR'), name='delivery_finished'),
                    models.CheckConstraint(condition=models.Q(models.Q(('state', 'cancelled'), models.Q(('cancel_reason', ''), _negated=True)), models.Q(models.Q(('state', 'cancelled'), _negated=True), ('cancel_reason', '')), _connector='OR'), name='delivery_cancelled_with_reason'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Endpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tenant', models.CharField(help_text="The tenant's code.", max_length=63, validators=[django.core.validators.RegexValidator('\\A[a-z0-9][a-z0-9-]{0,62}\\Z', 'Use 1 to 63 lower-case letters, digits and hyphens.')])),
                ('name', models.CharField(max_length=100)),
                ('url', models.CharField(max_length=2000, validators=[django.core.validators.RegexValidator('\\Ahttps?://[A-Za-z0-9.:\\[\\]_-]+([/?][!\\"$-\\[\\]-~]*)?\\Z', 'Write https://host/path in ASCII, without user name, password, fragment (#), backslash or blanks.')], verbose_name='URL')),
                ('event_types', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64, validators=[django.core.validators.RegexValidator('\\A(\\*|[a-z][a-z0-9_]*(\\.[a-z0-9_]+)*)\\Z', 'Write an event type such as media.deleted, or * for every type.')]), help_text='Event types, such as media.deleted; * is every type, an empty list is refused.', size=None)),
                ('include_keys', models.BooleanField(default=False, help_text='Tell bucket, key and version id of each object. Without, they stand in bodies only where a bucket has no rule for assets, so that a short key is the asset itself.', verbose_name='object keys')),
                ('duplicate_is_success', models.BooleanField(default=False, help_text='For a receiver that answers 409 to an event that it has.', verbose_name='409 is an acknowledgement')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
                ('disabled_reason', models.TextField(blank=True)),
                ('retired_at', models.DateTimeField(blank=True, help_text='It is owed nothing more, for ever.', null=True)),
                ('failing_since', models.DateTimeField(editable=False, help_text='The first failure after its last success.', null=True)),
                ('circuit_step', models.PositiveSmallIntegerField(default=0, editable=False, help_text='0: closed; else opened so often.')),
                ('open_until', models.DateTimeField(editable=False, help_text='While the circuit is open: its next probe.', null=True)),
                ('paused_until', models.DateTimeField(editable=False, help_text='The endpoint asked for time: 429, Retry-After.', null=True)),
                ('concurrency', models.PositiveSmallIntegerField(default=32, editable=False)),
                ('concurrency_cut_at', models.DateTimeField(editable=False, null=True)),
                ('resumed_at', models.DateTimeField(editable=False, help_text='Since it was enabled it has been catching up; sends are paid from here on.', null=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('disabled_by', models.ForeignKey(blank=True, help_text='Empty: the rules did it.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['tenant', 'name'],
                'constraints': [
                    models.UniqueConstraint(fields=('tenant', 'name'), name='endpoint_name'),
                    models.CheckConstraint(condition=models.Q(('url__regex', '\\Ahttps?://[A-Za-z0-9.:\\[\\]_-]+([/?][!\\"$-\\[\\]-~]*)?\\Z')), name='endpoint_url'),
                    models.CheckConstraint(condition=models.Q(('event_types__len__gte', 1)), name='endpoint_types_not_empty'),
                    models.CheckConstraint(condition=models.Q(('event_types', ['*']), models.Q(('event_types__contains', ['*']), _negated=True), _connector='OR'), name='endpoint_every_type_alone'),
                    models.CheckConstraint(condition=models.Q(models.Q(('disabled_at', None), ('disabled_reason', '')), models.Q(('disabled_at__isnull', False), models.Q(('disabled_reason', ''), _negated=True)), _connector='OR'), name='endpoint_disabled_with_reason'),
                    models.CheckConstraint(condition=models.Q(('retired_at', None), ('disabled_at__isnull', False), _connector='OR'), name='endpoint_retired_is_disabled'),
                    models.CheckConstraint(condition=models.Q(models.Q(('circuit_step', 0), ('open_until', None)), models.Q(('circuit_step__gt', 0), ('open_until__isnull', False)), _connector='OR'), name='endpoint_circuit'),
                    models.CheckConstraint(condition=models.Q(('concurrency__range', (1, 32))), name='endpoint_concurrency'),
                ],
            },
        ),
        migrations.CreateModel(
            name='DeliveryAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('url', models.CharField(help_text='As it was then, without its query.', max_length=2000, verbose_name='URL')),
                ('key_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, help_text='The secrets that signed it, the newest first.', size=None)),
                ('peer', models.CharField(blank=True, help_text='The address that was connected to.', max_length=45)),
                ('status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('failure_class', models.CharField(blank=True, max_length=32)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('headers', models.JSONField(blank=True, help_text='Of the answer; a few, as they may help.', null=True)),
                ('response', models.BinaryField(blank=True, max_length=4096, null=True)),
                ('bytes_read', models.PositiveIntegerField(blank=True, null=True)),
                ('truncated', models.BooleanField(help_text='The body went on.', null=True)),
                ('reused', models.BooleanField(help_text='Sent over a connection that was open already.', null=True)),
                ('resent', models.BooleanField(help_text='That connection was dead, so it was sent again on a new one.', null=True)),
                ('dns_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('connect_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('tls_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('first_byte_ms', models.PositiveIntegerField(blank=True, help_text='From the request to the status line.', null=True)),
                ('milliseconds', models.PositiveIntegerField(blank=True, help_text='In all.', null=True)),
                ('number', models.PositiveIntegerField()),
                ('token', models.BigIntegerField()),
                ('is_probe', models.BooleanField(default=False)),
                ('delivery', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='attempt_rows', to='webhooks.delivery')),
                ('endpoint', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webhooks.endpoint')),
            ],
            options={
                'verbose_name': 'delivery attempt',
                'ordering': ['-id'],
                'abstract': False,
                'indexes': [
                    models.Index(condition=models.Q(('finished_at', None)), fields=['endpoint', 'started_at'], name='attempt_in_flight'),
                    models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['endpoint', '-finished_at'], name='attempt_answers'),
                    models.Index(condition=models.Q(('failure_class', ''), _negated=True), fields=['failure_class', '-finished_at', '-id'], name='attempt_failed'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('delivery', 'token'), name='attempt_token'),
                    models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(models.Func(models.F('response'), function='octet_length', output_field=models.IntegerField()), 4096), name='deliveryattempt_response_limit'),
                    models.CheckConstraint(condition=models.Q(models.Q(('error', ''), ('failure_class', ''), ('finished_at', None), ('milliseconds', None), ('response', None), ('status', None)), models.Q(('finished_at__isnull', False), ('milliseconds__isnull', False)), _connector='OR'), name='deliveryattempt_finished_whole'),
                ],
            },
        ),
        migrations.AddField(
            model_name='delivery',
            name='endpoint',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='deliveries', to='webhooks.endpoint'),
        ),
        migrations.CreateModel(
            name='EndpointSecret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_encrypted', models.BinaryField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='secrets', to='webhooks.endpoint')),
            ],
        ),
        migrations.CreateModel(
            name='Lane',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tenant', models.CharField(max_length=63)),
                ('subject', models.TextField(db_collation='C')),
                ('n', models.BigIntegerField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'subject'), name='lane_unique')],
            },
        ),
        migrations.AddField(
            model_name='delivery',
            name='lane',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webhooks.lane'),
        ),
        migrations.CreateModel(
            name='OutboxEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(db_collation='C', max_length=64)),
                ('tenant', models.CharField(max_length=63)),
                ('type', models.CharField(max_length=64)),
                ('subject', models.TextField(db_collation='C')),
                ('name', models.TextField(db_collation='C')),
                ('occurrence', models.CharField(blank=True, max_length=200)),
                ('command_key', models.TextField(blank=True, db_collation='C')),
                ('sequence', models.BigIntegerField()),
                ('schema_version', models.PositiveSmallIntegerField(default=1)),
                ('body', models.BinaryField()),
                ('body_sha256', models.BinaryField(max_length=32)),
                ('emitted_at', models.DateTimeField()),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
                ('lane', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webhooks.lane')),
            ],
            options={
                'verbose_name': 'event',
                'ordering': ['-id'],
                'indexes': [
                    models.Index(fields=['command_key'], name='event_by_command_key'),
                    models.Index(condition=models.Q(('settled_at', None)), fields=['id'], name='event_unsettled'),
                    models.Index(fields=['tenant', '-id'], name='event_by_tenant'),
                    django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['emitted_at'], name='event_by_time', pages_per_range=32),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('event_id',), name='event_id_unique'),
                    models.CheckConstraint(condition=models.Q(('body_sha256', models.Func(models.F('body'), function='sha256', output_field=models.BinaryField()))), name='event_digest'),
                    models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(models.Func(models.F('body'), function='octet_length', output_field=models.IntegerField()), 65536), name='event_body_limit'),
                ],
            },
        ),
        migrations.CreateModel(
            name='DetailedBody',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('body', models.BinaryField()),
                ('body_sha256', models.BinaryField(max_length=32)),
                ('event', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='detailed', to='webhooks.outboxevent')),
            ],
            options={
                'verbose_name': 'body with object keys',
                'verbose_name_plural': 'bodies with object keys',
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('body_sha256', models.Func(models.F('body'), function='sha256', output_field=models.BinaryField()))), name='detailed_body_digest'),
                    models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(models.Func(models.F('body'), function='octet_length', output_field=models.IntegerField()), 65536), name='detailed_body_limit'),
                ],
            },
        ),
        migrations.AddField(
            model_name='delivery',
            name='event',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='deliveries', to='webhooks.outboxevent'),
        ),
        migrations.CreateModel(
            name='Ping',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('url', models.CharField(help_text='As it was then, without its query.', max_length=2000, verbose_name='URL')),
                ('key_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, help_text='The secrets that signed it, the newest first.', size=None)),
                ('peer', models.CharField(blank=True, help_text='The address that was connected to.', max_length=45)),
                ('status', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('failure_class', models.CharField(blank=True, max_length=32)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('headers', models.JSONField(blank=True, help_text='Of the answer; a few, as they may help.', null=True)),
                ('response', models.BinaryField(blank=True, max_length=4096, null=True)),
                ('bytes_read', models.PositiveIntegerField(blank=True, null=True)),
                ('truncated', models.BooleanField(help_text='The body went on.', null=True)),
                ('reused', models.BooleanField(help_text='Sent over a connection that was open already.', null=True)),
                ('resent', models.BooleanField(help_text='That connection was dead, so it was sent again on a new one.', null=True)),
                ('dns_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('connect_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('tls_ms', models.PositiveIntegerField(blank=True, null=True)),
                ('first_byte_ms', models.PositiveIntegerField(blank=True, help_text='From the request to the status line.', null=True)),
                ('milliseconds', models.PositiveIntegerField(blank=True, help_text='In all.', null=True)),
                ('event_id', models.CharField(db_collation='C', max_length=64)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='pings', to='webhooks.endpoint')),
                ('sent_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-id'],
                'abstract': False,
                'constraints': [
                    models.UniqueConstraint(fields=('event_id',), name='ping_event_id_unique'),
                    models.CheckConstraint(condition=django.db.models.lookups.LessThanOrEqual(models.Func(models.F('response'), function='octet_length', output_field=models.IntegerField()), 4096), name='ping_response_limit'),
                    models.CheckConstraint(condition=models.Q(models.Q(('error', ''), ('failure_class', ''), ('finished_at', None), ('milliseconds', None), ('response', None), ('status', None)), models.Q(('finished_at__isnull', False), ('milliseconds__isnull', False)), _connector='OR'), name='ping_finished_whole'),
                ],
            },
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['endpoint', 'due_at', 'id'], name='delivery_due'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('event', 'endpoint', 'round'), name='delivery_once'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lane__isnull', False), ('requested_by', None), ('round', 0)), models.Q(('lane', None), ('requested_by__isnull', False), ('round__gt', 0)), _connector='OR'), name='delivery_round'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'pending')), fields=('endpoint', 'lane', 'sequence'), name='delivery_open'),
        ),
        sqlfiles.run(
            __file__,
            "event_guard.sql",
            undo="DROP FUNCTION guard_event() CASCADE; DROP FUNCTION guard_detailed_body() CASCADE",
        ),
        sqlfiles.run(__file__, "delivery_guard.sql", undo="DROP FUNCTION guard_delivery() CASCADE"),
        sqlfiles.run(
            __file__,
            "attempt_guard.sql",
            undo="DROP FUNCTION guard_attempt() CASCADE; DROP FUNCTION guard_ping() CASCADE",
        ),
        sqlfiles.run(__file__, "storage.sql", undo=""),
    ]
