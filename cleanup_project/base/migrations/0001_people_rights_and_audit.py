import datetime

import django.contrib.auth.models
import django.contrib.auth.validators
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from cleanup_project.base import sqlfiles


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('django_q', '0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more'),
    ]

    operations = [
        migrations.CreateModel(
            name='Right',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ],
            options={
                'permissions': [('draft_policy', 'Draft and submit a retention policy'), ('publish_policy', 'Publish a policy revision or widen enforcement (not the author)'), ('approve_run', 'Approve a run, exempt items (not who opened it)'), ('place_hold', 'Place a legal hold, request its release'), ('approve_release', 'Approve the release of a hold (not who asked)'), ('review_quarantine', 'Review quarantine, close without retry'), ('operate', 'Replay, pause, resume, manage endpoints, redeliver'), ('post_event', 'Post or withdraw a retention event'), ('stop', 'Press the stop switch'), ('rearm', 'Lift the stop switch, re-arm a circuit breaker'), ('read_everything', 'Read everything'), ('export_receipts', 'Export receipts'), ('manage_settings', 'Manage users, buckets, tokens and settings')],
                'managed': False,
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('username', models.CharField(error_messages={'unique': 'A user with that username already exists.'}, help_text='Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.', max_length=150, unique=True, validators=[django.contrib.auth.validators.UnicodeUsernameValidator()], verbose_name='username')),
                ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                ('email', models.EmailField(blank=True, max_length=254, verbose_name='email address')),
                ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
                ('tenants', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), blank=True, default=list, help_text='Codes of the tenants whose things this person sees and decides; empty: of every tenant.', size=None)),
                ('is_program', models.BooleanField(default=False, editable=False, help_text='It has tokens, and never signs in.')),
                ('rights', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), default=list, editable=False, help_text="Of a program: what its token lets it decide. A person's come from their roles.", size=None)),
            ],
            options={
                'verbose_name': 'user',
                'verbose_name_plural': 'users',
                'abstract': False,
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('is_program', False), ('rights', [])), models.Q(('is_program', True), ('is_staff', False), ('is_superuser', False), ('password__startswith', '!'), ('rights__contained_by', ['export_receipts', 'operate', 'place_hold', 'post_event', 'review_quarantine'])), _connector='OR'), name='program_never_signs_in')],
            },
            managers=[
                ('objects', django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name='AuditEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('actor_name', models.CharField(help_text="The person's name at the time, or the system's part.", max_length=150)),
                ('action', models.CharField(help_text='For example policy.published.', max_length=64)),
                ('subject_type', models.CharField(max_length=64)),
                ('subject_id', models.CharField(max_length=64)),
                ('subject_label', models.TextField()),
                ('tenant', models.CharField(blank=True, default='', help_text='Of the subject; empty where no single tenant owns it.', max_length=63)),
                ('reason', models.TextField(blank=True)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
                ('request_id', models.CharField(blank=True, max_length=64)),
                ('actor', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'audit event',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['subject_type', 'subject_id', '-id'], name='audit_subject'), models.Index(fields=['actor', '-id'], name='audit_actor'), models.Index(condition=models.Q(('tenant', ''), _negated=True), fields=['tenant', '-id'], name='audit_tenant'), models.Index(fields=['action', '-id'], name='audit_action', opclasses=['varchar_pattern_ops', 'int8_ops']), models.Index(fields=['-at', '-id'], name='audit_at'), models.Index(condition=models.Q(('request_id', ''), _negated=True), fields=['request_id'], name='audit_request')],
            },
        ),
        migrations.CreateModel(
            name='Heartbeat',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=255)),
                ('queue', models.CharField(help_text='The key of its messages.', max_length=100)),
                ('pid', models.PositiveIntegerField(help_text='Of its main process, which leads a session of its own.', null=True)),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When its supervisor last looked.')),
                ('stopped_at', models.DateTimeField(help_text='When it stopped in order; null: it runs, or was killed.', null=True)),
                ('last_tick_at', models.DateTimeField(help_text='When it last began a tick, or those whose rows it replaced.', null=True)),
                ('last_start_at', models.DateTimeField(null=True)),
                ('last_end_at', models.DateTimeField(null=True)),
                ('last_ack_at', models.DateTimeField(null=True)),
                ('unacked_since', models.DateTimeField(help_text='The first end of a task that no acknowledgement followed.', null=True)),
                ('restarts', models.PositiveIntegerField(default=0)),
                ('restart_reason', models.TextField(blank=True, help_text='Of the last restart.')),
            ],
            options={
                'verbose_name': 'worker cluster',
                'ordering': ['host', 'queue', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Alarm',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(help_text='For example catalogue.stale.', max_length=64)),
                ('subject_type', models.CharField(max_length=64)),
                ('subject_id', models.CharField(max_length=64)),
                ('subject_label', models.TextField()),
                ('tenant', models.CharField(blank=True, default='', help_text='Of the subject; empty where no single tenant owns it.', max_length=63)),
                ('message', models.TextField(help_text='What is wrong, with its numbers, and what to do.')),
                ('raised_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('noticed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it was last found to be so.')),
                ('cleared_at', models.DateTimeField(blank=True, null=True)),
                ('announced_at', models.DateTimeField(editable=False, help_text='When its event was written.', null=True)),
                ('end_announced_at', models.DateTimeField(editable=False, help_text='When the event that it is over was written.', null=True)),
                ('told_at', models.DateTimeField(editable=False, help_text='When an e-mail last told of it.', null=True)),
                ('end_told_at', models.DateTimeField(editable=False, help_text='When an e-mail told that it is over.', null=True)),
                ('tried_at', models.DateTimeField(editable=False, help_text='When an e-mail about it was last begun.', null=True)),
                ('tries', models.PositiveIntegerField(db_default=0, default=0, editable=False, help_text='How often since then none could be sent.')),
                ('trouble', models.TextField(blank=True, db_default='', default='', editable=False, help_text='Why the last e-mail could not be sent.')),
            ],
            options={
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('cleared_at', None)), fields=('kind', 'subject_type', 'subject_id'), name='alarm_once'), models.CheckConstraint(condition=models.Q(('message', ''), _negated=True), name='alarm_says_what')],
                'indexes': [
                    models.Index(fields=['cleared_at'], name='alarm_by_end'),
                    models.Index(condition=models.Q(('announced_at', None), models.Q(('cleared_at__isnull', False), ('end_announced_at', None)), _connector='OR'), fields=['id'], name='alarm_unannounced'),
                ],
            },
        ),
        migrations.CreateModel(
            name='BulkJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(help_text='For example redelivery.', max_length=64)),
                ('subject_type', models.CharField(help_text='What its items are.', max_length=64)),
                ('selection', models.TextField(help_text='What was chosen, in words.')),
                ('reason', models.TextField()),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('tenants', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), blank=True, default=list, help_text='Its items are of these tenants: those of whoever made it; empty: of any.', size=None)),
                ('token', models.UUIDField(help_text='Of the form: sent twice, it makes one job.', unique=True)),
                ('asked', models.JSONField(default=dict, help_text='How many items were seen before, and the rate, as asked for.')),
                ('details', models.JSONField(default=dict, help_text='What else its verb is told.')),
                ('lanes', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), default=list, help_text='At most one job of its kind is open in each of these.', size=None)),
                ('total', models.PositiveIntegerField(default=0)),
                ('done', models.PositiveIntegerField(default=0)),
                ('outcomes', models.JSONField(default=dict, help_text='How many items ended how.')),
                ('rate', models.PositiveIntegerField(help_text='Items a second, at most.')),
                ('free_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False, help_text='Until then its rate allows no item.')),
                ('state', models.CharField(choices=[('running', 'Running'), ('paused', 'Paused'), ('done', 'Done'), ('cancelled', 'Cancelled')], default='running', max_length=9)),
                ('paused_because', models.TextField(blank=True)),
                ('worked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('in_charge', models.ForeignKey(help_text='In whose name items are done: who asked for it, or who resumed it last.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'bulk job',
                'ordering': ['-id'],
                'indexes': [
                    models.Index(condition=models.Q(('state', 'running')), fields=['worked_at'], name='bulkjob_running'),
                    models.Index(condition=models.Q(('finished_at', None)), fields=['kind'], name='bulkjob_open'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('done__lte', models.F('total'))), name='bulkjob_within_total'),
                    models.CheckConstraint(condition=models.Q(('rate__range', (1, 1000))), name='bulkjob_rate'),
                    models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='bulkjob_with_reason'),
                    models.CheckConstraint(condition=models.Q(models.Q(('state', 'paused'), models.Q(('paused_because', ''), _negated=True)), models.Q(models.Q(('state', 'paused'), _negated=True), ('paused_because', '')), _connector='OR'), name='bulkjob_paused_with_reason'),
                    models.CheckConstraint(condition=models.Q(models.Q(('finished_at', None), ('state__in', ['running', 'paused'])), models.Q(('done', models.F('total')), ('finished_at__isnull', False), ('state', 'done')), models.Q(('finished_at__isnull', False), ('state', 'cancelled')), _connector='OR'), name='bulkjob_finished'),
                ],
            },
        ),
        migrations.CreateModel(
            name='BulkItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ordinal', models.PositiveIntegerField(help_text='Items are done in this order.')),
                ('subject_id', models.BigIntegerField()),
                ('outcome', models.CharField(blank=True, max_length=32)),
                ('detail', models.TextField(blank=True)),
                ('done_at', models.DateTimeField(blank=True, null=True)),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='items', to='base.bulkjob')),
            ],
            options={
                'verbose_name': "bulk job's item",
                'verbose_name_plural': 'items of bulk jobs',
                'ordering': ['job_id', 'ordinal'],
                'indexes': [
                    models.Index(fields=['job', 'outcome', 'ordinal'], name='bulkitem_by_outcome'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('job', 'ordinal'), name='bulkitem_ordinal'),
                    models.CheckConstraint(condition=models.Q(models.Q(('done_at', None), ('outcome', '')), models.Q(models.Q(('outcome', ''), _negated=True), ('done_at__isnull', False)), _connector='OR'), name='bulkitem_done_with_outcome'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('pk', models.CompositePrimaryKey('metric', 'seconds', 'tenant', 'begins_at', 'label', 'bucket', blank=True, editable=False, primary_key=True, serialize=False)),
                ('metric', models.CharField(max_length=32)),
                ('seconds', models.PositiveIntegerField(help_text='How long the stretch is: one of `rollups.KEPT`.')),
                ('tenant', models.CharField(help_text='Its code; empty: all tenants together.', max_length=63)),
                ('begins_at', models.DateTimeField()),
                ('label', models.CharField(help_text='A class or an outcome; empty where the metric has none.', max_length=32)),
                ('bucket', models.SmallIntegerField(help_text='Of `rollups.bucket_of`; -1 where nothing was timed.')),
                ('n', models.PositiveIntegerField()),
                ('greatest', models.FloatField(help_text='The longest of them, in seconds, exactly.', null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['seconds', 'begins_at'], name='rollup_by_time')],
            },
        ),
        migrations.CreateModel(
            name='RollupTotal',
            fields=[
                ('pk', models.CompositePrimaryKey('metric', 'label', 'bucket', blank=True, editable=False, primary_key=True, serialize=False)),
                ('metric', models.CharField(max_length=32)),
                ('label', models.CharField(max_length=32)),
                ('bucket', models.SmallIntegerField()),
                ('n', models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='RollupMark',
            fields=[
                ('source', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('counted_until', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(help_text='Stands in the token, and in logs.', max_length=12, unique=True)),
                ('digest', models.BinaryField(help_text='SHA-256 of the secret.', max_length=32)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), size=None)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('expires_at', models.DateTimeField()),
                ('last_used_at', models.DateTimeField(blank=True, help_text='To the minute.', null=True)),
                ('last_used_from', models.GenericIPAddressField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_reason', models.TextField(blank=True)),
                ('account', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='tokens', to=settings.AUTH_USER_MODEL)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('replaces', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='replaced_by', to='base.apitoken')),
                ('revoked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'API token',
                'ordering': ['-id'],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('scopes__contained_by', ['catalogue:write', 'commands:read', 'events:post', 'holds:place', 'holds:read', 'holds:request-release', 'jobs:read', 'manifests:read', 'objects:read', 'policies:read', 'quarantine:close', 'quarantine:read', 'quarantine:replay', 'receipts:read', 'runs:create', 'runs:read']), ('scopes__len__gte', 1)), name='apitoken_scopes'),
                    models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('created_at')), ('expires_at__lte', models.expressions.CombinedExpression(models.F('created_at'), '+', models.Value(datetime.timedelta(days=366))))), name='apitoken_expires'),
                    models.CheckConstraint(condition=models.Q(models.Q(('revoked_at', None), ('revoked_by', None), ('revoked_reason', '')), models.Q(('revoked_at__isnull', False), ('revoked_by__isnull', False), models.Q(('revoked_reason', ''), _negated=True)), _connector='OR'), name='apitoken_revoked_with_reason'),
                ],
            },
        ),
        # The broker's poll: django-q2 itself indexes only the id, and messages in hand would be read at every poll.
        migrations.RunSQL('CREATE INDEX ormq_by_key_and_lock ON django_q_ormq (key, lock)', 'DROP INDEX ormq_by_key_and_lock'),
        sqlfiles.run(__file__, "refuse_change.sql", undo="DROP FUNCTION refuse_change()"),
        sqlfiles.append_only("base_auditevent"),
        sqlfiles.run(__file__, "bulk_guard.sql", undo="DROP FUNCTION guard_bulk() CASCADE"),
        sqlfiles.run(__file__, "apitoken_guard.sql", undo="DROP FUNCTION guard_apitoken() CASCADE"),
    ]
