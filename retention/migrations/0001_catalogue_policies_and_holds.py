import datetime

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
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
            name='Tenant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('\\A[a-z0-9][a-z0-9-]{0,62}\\Z', 'Use 1 to 63 lower-case letters, digits and hyphens.')])),
                ('name', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'ordering': ['code'],
            },
        ),
        migrations.CreateModel(
            name='Bucket',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255)),
                ('endpoint_url', models.CharField(blank=True, help_text="Empty for Amazon S3; else the store's base URL.", max_length=255, validators=[django.core.validators.RegexValidator('\\Ahttps?://[^/?#\\s]+\\Z', 'Write https://host or https://host:port, without a path.')])),
                ('region', models.CharField(default='us-east-1', max_length=64)),
                ('addressing_style', models.CharField(choices=[('path', 'Path'), ('virtual', 'Virtual'), ('auto', 'Auto')], default='auto', max_length=7)),
                ('credential_profile', models.CharField(blank=True, help_text='Profile in the AWS configuration of the workers; empty for their default.', max_length=128)),
                ('keys_per_second', models.PositiveIntegerField(default=1000, help_text='Deletions a second at the most; each key counts as one.', validators=[django.core.validators.MinValueValidator(1)])),
                ('settle_seconds', models.PositiveIntegerField(default=60, help_text='How long the store may go on executing a request that we lost sight of.')),
                ('breaker_percent', models.PositiveSmallIntegerField(blank=True, default=50, help_text='Where more than this share fails within five minutes, the bucket is stopped; empty: it never is.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(99)])),
                ('versioning', models.CharField(choices=[('unknown', 'Unknown'), ('enabled', 'Enabled'), ('suspended', 'Suspended'), ('unversioned', 'Unversioned')], default='unknown', editable=False, help_text='As observed.', max_length=11)),
                ('object_lock', models.BooleanField(editable=False, help_text='As observed.', null=True)),
                ('observed_at', models.DateTimeField(editable=False, null=True)),
                ('lifecycle_observed_at', models.DateTimeField(editable=False, null=True)),
                ('lifecycle_trouble', models.TextField(blank=True, db_default='', default='', editable=False, help_text='Why its lifecycle rules are not known.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.UniqueConstraint(fields=('endpoint_url', 'name'), name='bucket_unique'), models.CheckConstraint(condition=models.Q(('keys_per_second__gte', 1)), name='bucket_rate_positive'), models.CheckConstraint(condition=models.Q(('breaker_percent', None), ('breaker_percent__range', (1, 99)), _connector='OR'), name='bucket_breaker')],
            },
        ),
        migrations.CreateModel(
            name='LegalHold',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('bucket_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None, verbose_name='buckets')),
                ('prefixes', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(blank=True), help_text='Key prefixes, as bytes, no globs; the empty prefix is the whole bucket.', size=None)),
                ('retention_classes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(blank=True, max_length=200), help_text='Classes; * is any class, the empty one is unclassified.', size=None)),
                ('matter', models.CharField(help_text='The case or proceeding, as the lawyers name it.', max_length=200)),
                ('title', models.CharField(max_length=200)),
                ('authority', models.TextField()),
                ('reason', models.TextField()),
                ('custodian', models.CharField(blank=True, max_length=200)),
                ('stored_from', models.DateTimeField(blank=True, help_text='Inclusive; empty: from the beginning.', null=True)),
                ('stored_to', models.DateTimeField(blank=True, help_text='Exclusive; empty: without end.', null=True)),
                ('placed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('released_at', models.DateTimeField(blank=True, null=True)),
                ('placed_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'verbose_name': 'legal hold',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='HoldRelease',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('reason', models.TextField()),
                ('decision', models.CharField(blank=True, choices=[('', 'open'), ('approved', 'Approved'), ('denied', 'Denied')], max_length=8)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('decision_reason', models.TextField(blank=True)),
                ('impact', models.JSONField(blank=True, help_text='What the release would do, as whoever decided saw it (release_impact.py).', null=True)),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('hold', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='releases', to='retention.legalhold')),
                ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'hold release',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='HoldPrefix',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('prefix', models.TextField(blank=True, db_collation='C')),
                ('bucket', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('hold', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='lookup', to='retention.legalhold')),
            ],
            options={
                'verbose_name_plural': 'hold prefixes',
            },
        ),
        migrations.CreateModel(
            name='ObjectVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.TextField(db_collation='C')),
                ('version_id', models.TextField(db_collation='C')),
                ('incarnation', models.CharField(blank=True, db_collation='C', max_length=32)),
                ('etag', models.TextField(blank=True, help_text='Without quotes.')),
                ('size', models.BigIntegerField(help_text='Bytes.')),
                ('stored_at', models.DateTimeField(help_text='LastModified; a copy resets it.')),
                ('storage_class', models.CharField(blank=True, max_length=32)),
                ('is_latest', models.BooleanField()),
                ('is_delete_marker', models.BooleanField()),
                ('asset', models.TextField(db_collation='C')),
                ('series', models.TextField(db_collation='C')),
                ('retention_class', models.CharField(blank=True, db_collation='C', max_length=200)),
                ('role', models.CharField(choices=[('original', 'Original'), ('derivative', 'Derivative')], max_length=10)),
                ('original_key', models.TextField(blank=True, db_collation='C')),
                ('original_version_id', models.TextField(blank=True, db_collation='C', help_text='Empty: found by its time.')),
                ('standalone', models.BooleanField(help_text='Judged on its own: an original, or a derivative without one.')),
                ('dated_at', models.DateTimeField(blank=True, help_text='The date that its key or an import states.', null=True)),
                ('stated', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=15), blank=True, db_default=[], default=list, help_text='Facts that an import stated, so that a listing leaves them (retention/facts.py).', size=None)),
                ('source', models.CharField(choices=[('listing', 'Listing'), ('import', 'Import'), ('inventory', 'Inventory')], max_length=9)),
                ('first_observed_at', models.DateTimeField()),
                ('observed_at', models.DateTimeField(help_text='The time before the request was sent that showed it.')),
                ('listed_at', models.DateTimeField(blank=True, help_text='Last shown by a listing of our own.', null=True)),
                ('gone_at', models.DateTimeField(blank=True, null=True)),
                ('gone_reason', models.CharField(blank=True, choices=[('', 'present'), ('vanished', 'vanished outside of us'), ('destroyed', 'destroyed by us')], max_length=9)),
                ('survived_at', models.DateTimeField(blank=True, help_text='A later listing still showed it after its end.', null=True)),
                ('bucket', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='retention.bucket')),
                ('original_bucket', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('parked_by', models.ForeignKey(blank=True, db_index=False, help_text='A hold that covers it, so that scans need not read it again; the hold itself is the truth.', null=True, on_delete=django.db.models.deletion.PROTECT, to='retention.legalhold')),
                ('tenant', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='retention.tenant')),
            ],
            options={
                'verbose_name': 'object version',
            },
        ),
        migrations.CreateModel(
            name='RetentionPolicy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('\\A[a-z0-9][a-z0-9-]{0,62}\\Z', 'Use 1 to 63 lower-case letters, digits and hyphens.')])),
                ('schedule', models.CharField(default='0 1 * * *', help_text='Cron expression, UTC.', max_length=100)),
                ('missed_slots', models.CharField(choices=[('run_once', 'run once now'), ('skip', 'skip and record')], default='run_once', max_length=8)),
                ('erasure', models.BooleanField(default=False, editable=False, help_text='Of one urgent erasure, whose list it destroys; it governs nothing.')),
                ('suspended_at', models.DateTimeField(blank=True, help_text='A suspended policy destroys nothing.', null=True)),
                ('suspended_reason', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='policies', to='retention.tenant')),
            ],
            options={
                'verbose_name_plural': 'retention policies',
                'ordering': ['code'],
            },
        ),
        migrations.CreateModel(
            name='PolicyRevision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('bucket_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None, verbose_name='buckets')),
                ('prefixes', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(blank=True), help_text='Key prefixes, as bytes, no globs; the empty prefix is the whole bucket.', size=None)),
                ('retention_classes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(blank=True, max_length=200), help_text='Classes; * is any class, the empty one is unclassified.', size=None)),
                ('number', models.PositiveIntegerField()),
                ('title', models.CharField(max_length=200)),
                ('authority', models.TextField(help_text='The law, contract or instrument that demands or permits the destruction.')),
                ('trigger', models.CharField(choices=[('stored_at', 'stored at'), ('dated_at', 'date attribute'), ('event', 'retention event')], help_text='What starts the clock.', max_length=9)),
                ('event_type', models.CharField(blank=True, help_text='Retention event: which one, for example contract-ended.', max_length=63, validators=[django.core.validators.RegexValidator('\\A[a-z0-9][a-z0-9-]{0,62}\\Z', 'Use 1 to 63 lower-case letters, digits and hyphens.')])),
                ('period_number', models.PositiveIntegerField(validators=[django.core.validators.MaxValueValidator(4000)])),
                ('period_unit', models.CharField(choices=[('days', 'Days'), ('weeks', 'Weeks'), ('months', 'Months'), ('years', 'Years')], max_length=6)),
                ('cutoff', models.CharField(choices=[('none', 'None'), ('month', 'end of month'), ('quarter', 'end of quarter'), ('year', 'end of year')], default='none', max_length=7)),
                ('keep_newest', models.PositiveIntegerField(default=0, help_text='Generations of a series that are always kept.')),
                ('retain_permanently', models.BooleanField(default=False)),
                ('remove_expired_markers', models.BooleanField(default=False, help_text='Also remove delete markers that no version stands behind any more.')),
                ('already_absent', models.CharField(choices=[('review', 'Review'), ('success', 'Success')], default='review', max_length=7)),
                ('authorisation', models.CharField(choices=[('approval', 'approval for each run'), ('standing', 'Standing')], default='approval', max_length=8)),
                ('cooling_off_minutes', models.PositiveIntegerField(default=0)),
                ('window_days', models.CharField(blank=True, help_text='On which a window opens, for example mon,tue,wed; empty: every day.', max_length=27)),
                ('window_start', models.TimeField(blank=True, help_text='Nothing is destroyed outside of the window.', null=True)),
                ('window_end', models.TimeField(blank=True, help_text='Before the start: on the day after.', null=True)),
                ('window_zone', models.CharField(default='UTC', help_text='For example Europe/Berlin.', max_length=64)),
                ('cap_objects', models.PositiveBigIntegerField(default=100000)),
                ('cap_bytes', models.PositiveBigIntegerField(default=1099511627776)),
                ('cap_share_percent', models.PositiveSmallIntegerField(default=10, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)])),
                ('breaker_percent', models.PositiveSmallIntegerField(blank=True, default=20, help_text='A run of which more than this share fails is stopped until somebody re-arms it; empty: it never is.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(99)])),
                ('breaker_minimum', models.PositiveIntegerField(default=50, help_text='Outcomes before the share is looked at.', validators=[django.core.validators.MinValueValidator(1)])),
                ('priority', models.PositiveSmallIntegerField(default=1, help_text='0 first, 2 last; urgent erasure is 0.', validators=[django.core.validators.MaxValueValidator(2)])),
                ('evidence_max_age_hours', models.PositiveIntegerField(default=24, help_text="How old a listing may be that proves a version's presence before it is destroyed.")),
                ('retroactive', models.BooleanField(help_text='Yes: also objects stored before the effective date. No: those stay with the predecessor.')),
                ('effective_from', models.DateTimeField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('published_at', models.DateTimeField(blank=True, null=True)),
                ('author', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('published_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
                ('policy', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='revisions', to='retention.retentionpolicy')),
            ],
            options={
                'verbose_name': 'policy revision',
                'ordering': ['policy', '-number'],
            },
        ),
        migrations.CreateModel(
            name='CatalogueSync',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('prefix', models.TextField(blank=True, db_collation='C')),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('after_key', models.TextField(blank=True, db_collation='C', help_text='Every version up to this key is recorded.')),
                ('pages', models.PositiveIntegerField(default=0)),
                ('versions', models.PositiveBigIntegerField(default=0, help_text='Versions and delete markers listed.')),
                ('refused', models.PositiveBigIntegerField(default=0, help_text='Keys that cannot be recorded, each one logged.')),
                ('vanished', models.PositiveBigIntegerField(default=0, help_text='Present before, not listed now.')),
                ('vanished_held', models.PositiveBigIntegerField(default=0, help_text='Of these, under a legal hold in force.')),
                ('vanished_retained', models.PositiveBigIntegerField(default=0, help_text='Of these, still retained by a policy.')),
                ('survived', models.PositiveBigIntegerField(default=0, help_text='Destroyed by us, yet listed later.')),
                ('bucket', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='syncs', to='retention.bucket')),
            ],
            options={
                'verbose_name': 'catalogue sync',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['bucket', '-id'], name='sync_by_bucket')],
            },
        ),
        migrations.CreateModel(
            name='Control',
            fields=[
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='control', serialize=False, to='retention.tenant')),
                ('epoch', models.BigIntegerField(db_default=0, default=0)),
            ],
        ),
        migrations.CreateModel(
            name='Enforcement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('prefix', models.TextField(blank=True, db_collation='C', help_text='The empty prefix is the whole bucket.')),
                ('reason', models.TextField()),
                ('switched_on_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('switched_off_at', models.DateTimeField(blank=True, null=True)),
                ('approved_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('bucket', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('requested_by', models.F('approved_by')), _negated=True), name='enforcement_second_person'), models.UniqueConstraint(condition=models.Q(('switched_off_at', None)), fields=('tenant', 'bucket', 'prefix'), name='enforcement_once')],
            },
        ),
        migrations.CreateModel(
            name='LifecycleRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rule_id', models.TextField(db_collation='C')),
                ('prefix', models.TextField(blank=True, db_collation='C')),
                ('words', models.TextField(help_text='What it does.')),
                ('data', models.JSONField(help_text='The same for programs (retention.storage.LifecycleRule).')),
                ('first_seen_at', models.DateTimeField()),
                ('last_seen_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('bucket', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='lifecycle_rules', to='retention.bucket')),
            ],
            options={
                'verbose_name': 'lifecycle rule',
                'ordering': ['bucket', 'id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('bucket', 'rule_id'), name='lifecycle_rule_once')],
            },
        ),
        migrations.CreateModel(
            name='KeyRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveIntegerField(help_text='Rules are tried in ascending order; the first match wins.')),
                ('pattern', models.CharField(db_collation='C', help_text='For example originals/{year}/{month}/{day}/{asset}.mp4; {_} matches anything but /, {name*} also /.', max_length=1024)),
                ('role', models.CharField(choices=[('original', 'Original'), ('derivative', 'Derivative')], default='original', max_length=10)),
                ('asset', models.CharField(blank=True, help_text='Template; empty: {asset}, else the key itself.', max_length=1024)),
                ('series', models.CharField(blank=True, help_text='Template; empty: the asset.', max_length=1024)),
                ('retention_class', models.CharField(blank=True, help_text='Template, for example video or {class}.', max_length=200)),
                ('original_key', models.CharField(blank=True, help_text="Derivatives only: template of the original's key.", max_length=1024)),
                ('bucket', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='key_rules', to='retention.bucket')),
                ('original_bucket', models.ForeignKey(blank=True, help_text='Empty: the same bucket.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'ordering': ['bucket', 'position'],
                'constraints': [models.UniqueConstraint(fields=('bucket', 'position'), name='key_rule_position')],
            },
        ),
        migrations.CreateModel(
            name='RetentionEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('bucket_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None, verbose_name='buckets')),
                ('prefixes', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(blank=True), help_text='Key prefixes, as bytes, no globs; the empty prefix is the whole bucket.', size=None)),
                ('retention_classes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(blank=True, max_length=200), help_text='Classes; * is any class, the empty one is unclassified.', size=None)),
                ('event_type', models.CharField(help_text='As in the policies that wait for it, for example contract-ended.', max_length=63, validators=[django.core.validators.RegexValidator('\\A[a-z0-9][a-z0-9-]{0,62}\\Z', 'Use 1 to 63 lower-case letters, digits and hyphens.')])),
                ('occurred_at', models.DateTimeField(help_text='When it happened: from then on the clock runs.')),
                ('reason', models.TextField(help_text='What happened. Kept for ever.')),
                ('reference', models.CharField(blank=True, help_text='Where that stands, for example a case number.', max_length=200)),
                ('started_versions', models.PositiveBigIntegerField(help_text='Object versions whose clock it started.')),
                ('started_bytes', models.PositiveBigIntegerField(help_text='Bytes of these.')),
                ('counted_all', models.BooleanField(help_text='No: there were more than were counted.')),
                ('posted_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('withdrawn_reason', models.TextField(blank=True)),
                ('posted_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
                ('withdrawn_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'retention event',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['tenant', 'event_type'], name='events_of_type'), models.Index(fields=['tenant', 'posted_at'], name='events_posted'), models.Index(condition=models.Q(('withdrawn_at__isnull', False)), fields=['tenant', 'withdrawn_at'], name='events_withdrawn')],
                'constraints': [models.CheckConstraint(condition=models.Q(('bucket_ids__len__gte', 1), ('prefixes__len__gte', 1), ('retention_classes__len__gte', 1)), name='retention_event_scope_not_empty'), models.CheckConstraint(condition=models.Q(models.Q(('event_type', ''), _negated=True), models.Q(('reason', ''), _negated=True)), name='retention_event_explained'), models.CheckConstraint(condition=models.Q(('occurred_at__lte', django.db.models.expressions.CombinedExpression(models.F('posted_at'), '+', models.Value(datetime.timedelta(days=1))))), name='retention_event_happened'), models.CheckConstraint(condition=models.Q(models.Q(('withdrawn_at', None), ('withdrawn_by', None), ('withdrawn_reason', '')), models.Q(('withdrawn_at__isnull', False), ('withdrawn_by__isnull', False), models.Q(('withdrawn_reason', ''), _negated=True)), _connector='OR'), name='retention_event_withdrawn_whole')],
            },
        ),
        migrations.CreateModel(
            name='Disposition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('exempt', 'exempt from destruction'), ('extend', 'kept longer'), ('reclassify', 'put into another class')], max_length=10)),
                ('until', models.DateTimeField(blank=True, help_text='Extended: not eligible before.', null=True)),
                ('former_class', models.CharField(blank=True, help_text='Reclassified: from this class.', max_length=200)),
                ('new_class', models.CharField(blank=True, help_text='Reclassified: to this class.', max_length=200)),
                ('reason', models.TextField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('end_reason', models.TextField(blank=True)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('ended_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('object_version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='dispositions', to='retention.objectversion')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['tenant', 'at'], name='dispositions_since'), models.Index(condition=models.Q(('ended_at', None), models.Q(('kind', 'reclassify'), _negated=True)), fields=['-id'], name='dispositions_in_force'), models.Index(fields=['kind', '-id'], name='dispositions_by_kind')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('former_class', ''), ('kind', 'exempt'), ('new_class', ''), ('until', None)), models.Q(('former_class', ''), ('kind', 'extend'), ('new_class', ''), ('until__isnull', False)), models.Q(('ended_at', None), ('kind', 'reclassify'), ('until', None), models.Q(('former_class', models.F('new_class')), _negated=True)), _connector='OR'), name='disposition_of_its_kind'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='disposition_explained'), models.CheckConstraint(condition=models.Q(models.Q(('end_reason', ''), ('ended_at', None), ('ended_by', None)), models.Q(('ended_at__isnull', False), ('ended_by__isnull', False), models.Q(('end_reason', ''), _negated=True)), _connector='OR'), name='disposition_ended_whole'), models.UniqueConstraint(condition=models.Q(('ended_at', None), ('kind', 'exempt')), fields=('object_version',), name='disposition_exempt_once')],
            },
        ),
        migrations.AddIndex(
            model_name='legalhold',
            index=models.Index(condition=models.Q(('released_at', None)), fields=['tenant'], name='holds_in_force'),
        ),
        migrations.AddConstraint(
            model_name='legalhold',
            constraint=models.CheckConstraint(condition=models.Q(('bucket_ids__len__gte', 1), ('prefixes__len__gte', 1), ('retention_classes__len__gte', 1)), name='hold_scope_not_empty'),
        ),
        migrations.AddConstraint(
            model_name='legalhold',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('matter', ''), _negated=True), models.Q(('title', ''), _negated=True), models.Q(('authority', ''), _negated=True), models.Q(('reason', ''), _negated=True)), name='hold_explained'),
        ),
        migrations.AddConstraint(
            model_name='legalhold',
            constraint=models.CheckConstraint(condition=models.Q(('stored_from', None), ('stored_to', None), ('stored_from__lt', models.F('stored_to')), _connector='OR'), name='hold_range'),
        ),
        migrations.AddConstraint(
            model_name='holdrelease',
            constraint=models.CheckConstraint(condition=models.Q(('reason__regex', '\\S')), name='release_reason'),
        ),
        migrations.AddConstraint(
            model_name='holdrelease',
            constraint=models.CheckConstraint(condition=models.Q(('decided_by', models.F('requested_by')), _negated=True), name='release_second_person'),
        ),
        migrations.AddConstraint(
            model_name='holdrelease',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('decided_at', None), ('decided_by', None), ('decision', ''), ('decision_reason', ''), ('impact__isnull', True)), models.Q(('decided_at__isnull', False), ('decided_by__isnull', False), ('decision__in', ['approved', 'denied']), ('decision_reason__regex', '\\S')), _connector='OR'), name='release_decided_whole'),
        ),
        migrations.AddConstraint(
            model_name='holdrelease',
            constraint=models.UniqueConstraint(condition=models.Q(('decision', '')), fields=('hold',), name='release_one_open'),
        ),
        migrations.AddConstraint(
            model_name='holdprefix',
            constraint=models.UniqueConstraint(fields=('bucket', 'prefix', 'hold'), name='hold_prefix_unique'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('gone_at', None), ('is_delete_marker', False), ('parked_by', None), ('standalone', True)), fields=['tenant', 'bucket', 'retention_class', 'stored_at', 'id'], name='scan_by_stored_at'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('dated_at__isnull', False), ('gone_at', None), ('is_delete_marker', False), ('parked_by', None), ('standalone', True)), fields=['tenant', 'bucket', 'retention_class', 'dated_at', 'id'], name='scan_by_dated_at'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('gone_at', None), ('is_delete_marker', True), ('parked_by', None), ('standalone', True)), fields=['tenant', 'bucket', 'retention_class', 'stored_at', 'id'], name='scan_markers'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('gone_at', None), ('role', 'derivative')), fields=['original_bucket', 'original_key'], name='derivatives_of'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('gone_at', None)), fields=['tenant', 'asset'], name='versions_of_asset'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('gone_at', None), ('is_delete_marker', False), ('standalone', True)), fields=['tenant', 'series'], name='generations_of'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('parked_by__isnull', False)), fields=['parked_by', 'id'], name='parked'),
        ),
        migrations.AddConstraint(
            model_name='objectversion',
            constraint=models.UniqueConstraint(fields=('bucket', 'key', 'version_id', 'incarnation'), name='object_version_identity'),
        ),
        migrations.AddConstraint(
            model_name='objectversion',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('key', ''), _negated=True), models.Q(('version_id', ''), _negated=True)), name='object_version_named'),
        ),
        migrations.AddConstraint(
            model_name='objectversion',
            constraint=models.CheckConstraint(condition=models.Q(('asset__regex', '^[!-$&-9;-~]{1,200}$')), name='object_version_asset'),
        ),
        migrations.AddConstraint(
            model_name='objectversion',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('gone_at', None), ('gone_reason', '')), models.Q(('gone_at__isnull', False), models.Q(('gone_reason', ''), _negated=True)), _connector='OR'), name='object_version_gone'),
        ),
        migrations.AddConstraint(
            model_name='objectversion',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('original_key', ''), ('role', 'original'), ('standalone', True)), models.Q(('role', 'derivative'), models.Q(('original_key', ''), _negated=True), ('original_bucket__isnull', False)), _connector='OR'), name='object_version_coupled'),
        ),
        migrations.AddConstraint(
            model_name='objectversion',
            constraint=models.CheckConstraint(condition=models.Q(('size__gte', 0)), name='object_version_size'),
        ),
        migrations.AddConstraint(
            model_name='retentionpolicy',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('suspended_at', None), ('suspended_reason', '')), models.Q(('suspended_at__isnull', False), models.Q(('suspended_reason', ''), _negated=True)), _connector='OR'), name='policy_suspended_with_reason'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(('bucket_ids__len__gte', 1), ('prefixes__len__gte', 1), ('retention_classes__len__gte', 1)), name='revision_scope_not_empty'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.UniqueConstraint(fields=('policy', 'number'), name='revision_number'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(('published_by', models.F('author')), _negated=True), name='revision_second_person'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('published_at', None), ('published_by', None)), models.Q(('published_at__isnull', False), ('published_by__isnull', False), models.Q(('authority', ''), _negated=True), models.Q(('title', ''), _negated=True)), _connector='OR'), name='revision_published_whole'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(('period_number__lte', 4000), ('cap_share_percent__range', (1, 100)), ('priority__lte', 2)), name='revision_ranges'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(('breaker_minimum__gte', 1), models.Q(('breaker_percent', None), ('breaker_percent__range', (1, 99)), _connector='OR')), name='revision_breaker'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('window_end', None), ('window_start', None)), models.Q(('window_end__isnull', False), ('window_start__isnull', False)), _connector='OR'), name='revision_window_whole'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('trigger', 'event'), models.Q(('event_type', ''), _negated=True)), models.Q(models.Q(('trigger', 'event'), _negated=True), ('event_type', '')), _connector='OR'), name='revision_event_named'),
        ),
        migrations.AddIndex(
            model_name='objectversion',
            index=models.Index(condition=models.Q(('gone_reason', 'destroyed')), fields=['tenant', 'gone_at'], name='destroyed_since'),
        ),
        migrations.AddConstraint(
            model_name='policyrevision',
            constraint=models.CheckConstraint(condition=models.Q(('window_days__regex', '^((mon|tue|wed|thu|fri|sat|sun)(,(mon|tue|wed|thu|fri|sat|sun))*)?$'), models.Q(('window_zone', ''), _negated=True), models.Q(('window_start', None), models.Q(('window_start', models.F('window_end')), _negated=True), _connector='OR')), name='revision_window'),
        ),
        migrations.CreateModel(
            name='StopSwitch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(choices=[('everything', 'Everything'), ('tenant', 'one tenant'), ('bucket', 'one bucket'), ('policy', 'one policy')], max_length=10)),
                ('reason', models.TextField(help_text='Kept for ever, and shown on every page until it is lifted.')),
                ('pressed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('lifted_at', models.DateTimeField(blank=True, null=True)),
                ('lift_reason', models.TextField(blank=True, db_default='', default='')),
                ('bucket', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('lifted_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('policy', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.retentionpolicy')),
                ('pressed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'verbose_name': 'stop switch',
                'verbose_name_plural': 'stop switches',
                'ordering': ['-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('bucket', None), ('policy', None), ('scope', 'everything'), ('tenant', None)), models.Q(('bucket', None), ('policy', None), ('scope', 'tenant'), ('tenant__isnull', False)), models.Q(('bucket__isnull', False), ('policy', None), ('scope', 'bucket'), ('tenant', None)), models.Q(('bucket', None), ('policy__isnull', False), ('scope', 'policy'), ('tenant', None)), _connector='OR'), name='stop_names_its_scope'), models.UniqueConstraint(condition=models.Q(('lifted_at', None)), fields=('scope', 'tenant', 'bucket', 'policy'), name='stop_once', nulls_distinct=False, violation_error_message='It is stopped already: its switch stands on top of every page.'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='stop_explained'), models.CheckConstraint(condition=models.Q(models.Q(('lift_reason', ''), ('lifted_at', None), ('lifted_by', None)), models.Q(('lifted_at__gte', models.F('pressed_at')), ('lifted_at__isnull', False), ('lifted_by__isnull', False), models.Q(('lift_reason', ''), _negated=True)), _connector='OR'), name='stop_lifted_by_somebody')],
            },
        ),
        sqlfiles.run(__file__, "due_at.sql", undo="DROP FUNCTION due_at(timestamptz, interval, text)"),
        sqlfiles.run(__file__, "revision_guard.sql", undo="DROP FUNCTION guard_revision() CASCADE"),
        sqlfiles.run(__file__, "hold_guard.sql", undo="DROP FUNCTION guard_hold(), guard_hold_release() CASCADE"),
        sqlfiles.run(__file__, "retention_event_guard.sql", undo="DROP FUNCTION guard_retention_event() CASCADE"),
        sqlfiles.run(__file__, "disposition_guard.sql", undo="DROP FUNCTION guard_disposition() CASCADE"),
        sqlfiles.run(__file__, "stop_guard.sql", undo="DROP FUNCTION guard_stop(), guard_new_stop() CASCADE"),
        sqlfiles.append_only("retention_holdprefix"),
    ]
