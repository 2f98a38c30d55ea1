import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
import ledger.states
from django.conf import settings
from django.db import migrations, models

from cleanup_project.base import sqlfiles


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('retention', '0001_catalogue_policies_and_holds'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='CleanupCommand',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(db_collation='C', max_length=700, unique=True)),
                ('asset', models.TextField(db_collation='C')),
                ('item_id', models.BigIntegerField(help_text='The manifest item of that run.')),
                ('target_count', models.PositiveIntegerField(verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField()),
                ('eligible_since', models.DateTimeField()),
                ('published_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('state', models.CharField(choices=[('ready', 'ready'), ('deleted', 'deleted'), ('notified', 'notified'), ('held', 'held'), ('dead', 'dead'), ('withdrawn', 'withdrawn')], default=ledger.states.CommandState['READY'], max_length=9)),
                ('cycle', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('outcome', models.CharField(blank=True, choices=[('deleted', 'Deleted'), ('by_absence', 'confirmed by absence'), ('already_absent', 'already absent')], db_default='', default='', max_length=14)),
                ('priority', models.PositiveSmallIntegerField(help_text='0 first, 2 last.')),
                ('due_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('inspect_due', models.DateTimeField(blank=True, null=True)),
                ('lease_token', models.BigIntegerField(db_default=0, default=0)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('claims', models.PositiveIntegerField(db_default=0, default=0)),
                ('lease_losses', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('attempts', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Charged ones of this cycle.')),
                ('failure_class', models.CharField(blank=True, db_default='', default='', max_length=20)),
                ('held_by', models.CharField(blank=True, choices=[('us', 'a hold of ours'), ('store', 'a lock of the store')], db_default='', default='', max_length=5)),
                ('held_until', models.DateTimeField(blank=True, help_text='Retention of the store; empty: no known end.', null=True)),
                ('reason', models.TextField(blank=True, db_default='', default='', help_text='Why it was withdrawn.')),
                ('event_id', models.CharField(blank=True, db_default='', default='', max_length=44)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('compacted_at', models.DateTimeField(blank=True, help_text='When its targets, requests and attempts became a summary.', null=True)),
                ('bucket', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('hold', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.legalhold')),
                ('policy', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.retentionpolicy')),
                ('revision', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.policyrevision')),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='commands', to='retention.tenant')),
            ],
            options={
                'verbose_name': 'command',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Pace',
            fields=[
                ('bucket', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='pace', serialize=False, to='retention.bucket')),
                ('free_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('gap', models.FloatField(help_text='Seconds for each key; grows when the store asks to slow down.')),
                ('last_cut', models.DateTimeField(blank=True, null=True)),
                ('last_raise', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='TenantSalt',
            fields=[
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='retention.tenant')),
                ('sealed', models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name='CommandSummary',
            fields=[
                ('command', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='summary', serialize=False, to='ledger.cleanupcommand')),
                ('summary', models.JSONField()),
                ('compacted_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='CleanupRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=120, unique=True)),
                ('mode', models.CharField(choices=[('dry_run', 'dry run'), ('enforce', 'enforce')], max_length=7)),
                ('state', models.CharField(choices=[('scanning', 'scanning'), ('needs_approval', 'needs approval'), ('cooling_off', 'cooling off'), ('authorised', 'authorised'), ('draining', 'draining'), ('paused', 'paused'), ('tripped', 'tripped'), ('closed', 'closed'), ('cancelled', 'cancelled')], default=ledger.states.RunState['SCANNING'], max_length=14)),
                ('as_of', models.DateTimeField(help_text='The instant at which eligibility is judged.')),
                ('scheduled_for', models.DateTimeField(blank=True, help_text='The slot of the schedule; empty: by hand.', null=True)),
                ('idempotency_key', models.CharField(blank=True, max_length=200, null=True, unique=True)),
                ('streams', models.JSONField(help_text='What is scanned, in order.')),
                ('opened_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('guards', models.JSONField(default=dict, help_text='What the floors and caps found, in numbers.')),
                ('sealed_at', models.DateTimeField(blank=True, null=True)),
                ('manifest_root', models.CharField(blank=True, help_text='SHA-256 over the digests of the parts, hex.', max_length=64)),
                ('item_count', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='items')),
                ('target_count', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField(blank=True, null=True)),
                ('remaining_root', models.CharField(blank=True, help_text='The root of what is not exempted; empty: not counted yet.', max_length=64)),
                ('remaining_count', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='items that remain')),
                ('exempt_count', models.PositiveBigIntegerField(db_default=0, default=0, verbose_name='exempted items')),
                ('authorised_at', models.DateTimeField(blank=True, null=True)),
                ('authorisation', models.TextField(blank=True, help_text="The approver's reason, or the standing authorisation.")),
                ('cooling_until', models.DateTimeField(blank=True, null=True)),
                ('rearmed_at', models.DateTimeField(blank=True, help_text='Since when the circuit breaker counts; empty: from the beginning.', null=True)),
                ('published_parts', models.PositiveIntegerField(db_default=0, default=0)),
                ('counts', models.JSONField(blank=True, help_text='Items by outcome when it closed.', null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('end_reason', models.TextField(blank=True)),
                ('authorised_by', models.ForeignKey(blank=True, help_text='Who approved the root of what remains; empty: a standing authorisation.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('opened_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('policy', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='retention.retentionpolicy')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'verbose_name': 'run',
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='cleanupcommand',
            name='run',
            field=models.ForeignKey(db_constraint=False, db_index=False, help_text='The run that authorised it last.', on_delete=django.db.models.deletion.PROTECT, related_name='commands', to='ledger.cleanuprun'),
        ),
        migrations.CreateModel(
            name='CommandTarget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ordinal', models.PositiveIntegerField()),
                ('object_version_id', models.BigIntegerField()),
                ('key', models.TextField(db_collation='C')),
                ('version_id', models.TextField(db_collation='C')),
                ('incarnation', models.CharField(blank=True, db_collation='C', max_length=32)),
                ('etag', models.TextField(blank=True)),
                ('size', models.BigIntegerField()),
                ('stored_at', models.DateTimeField()),
                ('role', models.CharField(choices=[('original', 'Original'), ('derivative', 'Derivative'), ('delete_marker', 'delete marker')], max_length=13)),
                ('active', models.BooleanField(db_default=True, default=True)),
                ('gone_at', models.DateTimeField(blank=True, help_text='When its absence was seen.', null=True)),
                ('evidence', models.JSONField(blank=True, help_text='Of a target that went before the others did.', null=True)),
                ('bucket', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('command', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='targets', to='ledger.cleanupcommand')),
            ],
            options={
                'verbose_name': 'target',
                'ordering': ['command', 'ordinal'],
            },
        ),
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cycle', models.PositiveSmallIntegerField()),
                ('key', models.TextField(blank=True, db_collation='C', help_text='Of the original; empty once its command is compacted.')),
                ('version_id', models.TextField(blank=True, db_collation='C', verbose_name='version')),
                ('failure_class', models.CharField(max_length=20)),
                ('storage_code', models.CharField(blank=True, db_collation='C', help_text='What the store called its last refusal.', max_length=64)),
                ('http_status', models.PositiveSmallIntegerField(blank=True, null=True, verbose_name='HTTP')),
                ('attempts', models.PositiveSmallIntegerField()),
                ('first_failed_at', models.DateTimeField(help_text='In this cycle.')),
                ('first_error', models.TextField()),
                ('last_error', models.TextField()),
                ('next_action', models.TextField(help_text='What a person can do, in plain words.')),
                ('entered_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='With its last failure.')),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('resolution', models.CharField(blank=True, choices=[('replayed', 'Replayed'), ('adopted', 'adopted by a later run'), ('closed', 'closed without retry'), ('deleted', 'found deleted')], db_default='', default='', max_length=8)),
                ('reason', models.TextField(blank=True, db_default='', default='')),
                ('bucket', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('command', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='dead_letters', to='ledger.cleanupcommand')),
                ('policy', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.retentionpolicy')),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, help_text='The run under which it failed.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.cleanuprun')),
                ('resolved_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'verbose_name': 'quarantine entry',
                'verbose_name_plural': 'quarantine entries',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cycle', models.PositiveSmallIntegerField()),
                ('kind', models.CharField(choices=[('replay', 'Replay'), ('adopted', 'adopted by a later run')], max_length=7)),
                ('reason', models.TextField()),
                ('repair', models.TextField(blank=True, help_text='What was repaired before: credentials, policy, locator.')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('command', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='ledger.cleanupcommand')),
                ('run', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.cleanuprun')),
            ],
            options={
                'ordering': ['command', 'cycle'],
            },
        ),
        migrations.CreateModel(
            name='Incident',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cycle', models.PositiveSmallIntegerField()),
                ('from_state', models.CharField(max_length=9)),
                ('detail', models.TextField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('command', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='incidents', to='ledger.cleanupcommand')),
            ],
        ),
        migrations.CreateModel(
            name='ManifestPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('key', models.CharField(max_length=132, unique=True)),
                ('cursor', models.JSONField(help_text='Where the next part begins.')),
                ('digest', models.CharField(help_text='SHA-256 over the digests of the items, hex.', max_length=64)),
                ('item_count', models.PositiveIntegerField(verbose_name='items')),
                ('target_count', models.PositiveIntegerField(verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField()),
                ('read', models.PositiveIntegerField(help_text='Object versions that the page looked at.')),
                ('held', models.PositiveIntegerField(help_text='Eligible, and left out because a legal hold covers them.')),
                ('oldest', models.DateTimeField(editable=False, help_text='Since when the first of them is eligible.', null=True)),
                ('not_enforced', models.PositiveIntegerField(help_text='Eligible, and left out because enforcement is off there.')),
                ('frozen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='parts', to='ledger.cleanuprun')),
            ],
            options={
                'verbose_name': 'manifest part',
                'ordering': ['run', 'number'],
            },
        ),
        migrations.CreateModel(
            name='ManifestItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ordinal', models.PositiveBigIntegerField(help_text='Counted through the whole run, from 1.')),
                ('command_key', models.CharField(db_collation='C', max_length=700)),
                ('object_version_id', models.BigIntegerField(help_text='The original, in the catalogue.')),
                ('eligible_since', models.DateTimeField()),
                ('target_count', models.PositiveIntegerField(verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField()),
                ('line', models.TextField(db_collation='C')),
                ('digest', models.BinaryField(max_length=32)),
                ('revision', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.policyrevision')),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='items', to='ledger.cleanuprun')),
                ('part', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='items', to='ledger.manifestpart')),
            ],
            options={
                'verbose_name': 'manifest item',
                'ordering': ['run', 'ordinal'],
            },
        ),
        migrations.CreateModel(
            name='Receipt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('command_id', models.BigIntegerField(unique=True)),
                ('command_key', models.CharField(db_collation='C', max_length=700, unique=True)),
                ('outcome', models.CharField(choices=[('deleted', 'Deleted'), ('by_absence', 'confirmed by absence'), ('already_absent', 'already absent')], max_length=14)),
                ('event_id', models.CharField(max_length=44)),
                ('target_count', models.PositiveIntegerField(verbose_name='targets')),
                ('bytes', models.PositiveBigIntegerField()),
                ('body', models.BinaryField()),
                ('digest', models.BinaryField(help_text='SHA-256 of the body.', max_length=32)),
                ('issued_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('bucket', models.ForeignKey(db_constraint=False, db_index=False, help_text='Of the original; the document names none.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('policy', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.retentionpolicy')),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='receipts', to='ledger.cleanuprun')),
                ('tenant', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ReceiptLocator',
            fields=[
                ('pk', models.CompositePrimaryKey('receipt_id', 'ordinal', blank=True, editable=False, primary_key=True, serialize=False)),
                ('ordinal', models.PositiveIntegerField()),
                ('bucket', models.CharField(max_length=255)),
                ('key', models.TextField(db_collation='C')),
                ('version_id', models.TextField(db_collation='C')),
                ('receipt', models.ForeignKey(db_column='command_id', db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='locators', to='ledger.receipt', to_field='command_id')),
            ],
        ),
        migrations.CreateModel(
            name='Request',
            fields=[
                ('pk', models.CompositePrimaryKey('command_id', 'token', blank=True, editable=False, primary_key=True, serialize=False)),
                ('token', models.BigIntegerField()),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('sent_before', models.DateTimeField(help_text='Nothing is sent under this token from then on.')),
                ('worker', models.CharField(max_length=100)),
                ('command', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='requests', to='ledger.cleanupcommand')),
            ],
        ),
        migrations.CreateModel(
            name='RunTally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('outcome', models.CharField(max_length=14)),
                ('commands', models.IntegerField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='tallies', to='ledger.cleanuprun')),
            ],
            options={
                'verbose_name_plural': 'run tallies',
            },
        ),
        migrations.CreateModel(
            name='OutcomeTally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tried', models.PositiveIntegerField()),
                ('failed', models.PositiveIntegerField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('bucket', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.cleanuprun')),
            ],
            options={
                'verbose_name_plural': 'outcome tallies',
                'indexes': [models.Index(fields=['run', 'at'], name='outcomes_of_run'), models.Index(fields=['bucket', 'at'], name='outcomes_of_bucket')],
            },
        ),
        migrations.CreateModel(
            name='StopReport',
            fields=[
                ('switch', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='report', serialize=False, to='retention.stopswitch')),
                ('reported_at', models.DateTimeField()),
                ('commands', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ('tokens', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('commands__len', models.F('tokens__len'))), name='stop_report_paired')],
            },
        ),
        migrations.CreateModel(
            name='SkippedItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('item_id', models.BigIntegerField()),
                ('command_key', models.CharField(db_collation='C', max_length=700)),
                ('reason', models.TextField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='skipped', to='ledger.cleanuprun')),
            ],
        ),
        migrations.CreateModel(
            name='Turn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('last_turn', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('turns', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('bucket', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.bucket')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('pk', models.CompositePrimaryKey('command_id', 'token', 'late', blank=True, editable=False, primary_key=True, serialize=False)),
                ('token', models.BigIntegerField()),
                ('late', models.BooleanField(db_default=False, default=False)),
                ('cycle', models.PositiveSmallIntegerField()),
                ('outcome', models.CharField(choices=[('deleted', 'Deleted'), ('by_absence', 'confirmed by absence'), ('already_absent', 'already absent'), ('present', 'inspected: present'), ('failed', 'Failed'), ('ambiguous', 'may have been executed'), ('held', 'Held'), ('withdrawn', 'Withdrawn'), ('not_sent', 'not sent'), ('lease_lost', 'lease lost')], max_length=14)),
                ('charged', models.BooleanField()),
                ('failure_class', models.CharField(blank=True, max_length=20)),
                ('detail', models.TextField(blank=True, help_text='Code, message and request id of the store.')),
                ('claimed_at', models.DateTimeField()),
                ('settled_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('worker', models.CharField(max_length=100)),
                ('command', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='tries', to='ledger.cleanupcommand')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('outcome__in', ['failed', 'ambiguous']), _negated=True), models.Q(('failure_class', ''), _negated=True), _connector='OR'), name='attempt_classified')],
            },
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', [ledger.states.RunState['AUTHORISED'], ledger.states.RunState['COOLING_OFF'], ledger.states.RunState['DRAINING'], ledger.states.RunState['NEEDS_APPROVAL'], ledger.states.RunState['PAUSED'], ledger.states.RunState['SCANNING'], ledger.states.RunState['TRIPPED']])), fields=('policy', 'mode'), name='run_no_overlap'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.UniqueConstraint(fields=('policy', 'scheduled_for'), name='run_slot'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('bytes', None), ('item_count', None), ('manifest_root', ''), ('sealed_at', None), ('target_count', None)), models.Q(('bytes__isnull', False), ('item_count__isnull', False), ('sealed_at__isnull', False), ('target_count__isnull', False), models.Q(('manifest_root', ''), _negated=True)), _connector='OR'), name='run_sealed_whole'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', [ledger.states.RunState['SCANNING'], ledger.states.RunState['CANCELLED']]), ('sealed_at__isnull', False), _connector='OR'), name='run_sealed_before_authorised'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', [ledger.states.RunState['SCANNING'], ledger.states.RunState['NEEDS_APPROVAL'], ledger.states.RunState['CANCELLED']]), models.Q(models.Q(('remaining_root', ''), _negated=True), ('remaining_count__isnull', False)), _connector='OR'), name='run_remaining_counted'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(('authorised_by', models.F('opened_by')), _negated=True), name='run_second_person'),
        ),
        migrations.AddConstraint(
            model_name='cleanuprun',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('state__in', [ledger.states.RunState['AUTHORISED'], ledger.states.RunState['COOLING_OFF'], ledger.states.RunState['DRAINING'], ledger.states.RunState['NEEDS_APPROVAL'], ledger.states.RunState['PAUSED'], ledger.states.RunState['SCANNING'], ledger.states.RunState['TRIPPED']])), models.Q(('ended_at__isnull', False), ('state__in', [ledger.states.RunState['CLOSED'], ledger.states.RunState['CANCELLED']])), _connector='OR'), name='run_ended'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(condition=models.Q(('state', ledger.states.CommandState['READY'])), fields=['bucket', 'tenant', 'priority', 'due_at', 'id'], name='command_due'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(fields=['run', 'state'], name='command_by_run'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(fields=['tenant', '-id'], name='command_by_tenant'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(condition=models.Q(('state', ledger.states.CommandState['DELETED'])), fields=['id'], name='command_unnotified'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(condition=models.Q(('inspect_due__isnull', False), models.Q(('state', ledger.states.CommandState['READY']), _negated=True)), fields=['inspect_due'], name='command_late_evidence'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(condition=models.Q(('state__in', [ledger.states.CommandState['DEAD'], ledger.states.CommandState['HELD'], ledger.states.CommandState['WITHDRAWN']])), fields=['state', '-id'], name='command_parked'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(condition=models.Q(('compacted_at', None), ('state', ledger.states.CommandState['NOTIFIED'])), fields=['changed_at'], name='command_to_compact'),
        ),
        migrations.AddConstraint(
            model_name='cleanupcommand',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', [ledger.states.CommandState['DELETED'], ledger.states.CommandState['NOTIFIED']]), models.Q(('outcome', ''), _negated=True), models.Q(('event_id', ''), _negated=True)), models.Q(models.Q(('state__in', [ledger.states.CommandState['DELETED'], ledger.states.CommandState['NOTIFIED']]), _negated=True), ('outcome', '')), _connector='OR'), name='command_outcome'),
        ),
        migrations.AddConstraint(
            model_name='cleanupcommand',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', ledger.states.CommandState['HELD']), models.Q(('held_by', ''), _negated=True)), models.Q(models.Q(('state', ledger.states.CommandState['HELD']), _negated=True), ('held_by', '')), _connector='OR'), name='command_held_by'),
        ),
        migrations.AddConstraint(
            model_name='cleanupcommand',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', ledger.states.CommandState['DEAD']), _negated=True), models.Q(('failure_class', ''), _negated=True), _connector='OR'), name='command_dead_with_class'),
        ),
        migrations.AddConstraint(
            model_name='cleanupcommand',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', ledger.states.CommandState['WITHDRAWN']), _negated=True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='command_withdrawn_with_reason'),
        ),
        migrations.AddConstraint(
            model_name='cleanupcommand',
            constraint=models.CheckConstraint(condition=models.Q(('lease_until', None), ('state', ledger.states.CommandState['READY']), _connector='OR'), name='command_leased_while_ready'),
        ),
        migrations.AddConstraint(
            model_name='cleanupcommand',
            constraint=models.CheckConstraint(condition=models.Q(('priority__lte', 2)), name='command_priority'),
        ),
        migrations.AddConstraint(
            model_name='commandtarget',
            constraint=models.UniqueConstraint(fields=('command', 'ordinal'), name='target_ordinal'),
        ),
        migrations.AddConstraint(
            model_name='commandtarget',
            constraint=models.UniqueConstraint(condition=models.Q(('active', True)), fields=('object_version_id',), name='target_one_open_command'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('resolved_at', None)), fields=['id'], name='quarantine_open'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('resolved_at', None)), fields=['failure_class', 'storage_code', 'bucket', 'tenant', 'id'], include=('entered_at',), name='quarantine_causes'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('resolved_at', None)), fields=['key', 'id'], name='quarantine_by_key'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(fields=['run', 'id'], name='quarantine_by_run'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(fields=['failure_class', 'id'], name='quarantine_by_class'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(fields=['tenant', 'id'], name='quarantine_by_tenant'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.UniqueConstraint(fields=('command', 'cycle'), name='dead_letter_cycle'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('resolution', ''), ('resolved_at', None)), models.Q(('resolved_at__isnull', False), models.Q(('resolution', ''), _negated=True)), _connector='OR'), name='dead_letter_resolved'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('resolution__in', ['replayed', 'closed']), _negated=True), models.Q(('resolved_by__isnull', False), models.Q(('reason', ''), _negated=True)), _connector='OR'), name='dead_letter_decided_by_somebody'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(fields=('command', 'cycle'), name='decision_cycle'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(('cycle__gte', 1), models.Q(('reason', ''), _negated=True)), name='decision_explained'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('by__isnull', False), ('kind', 'replay')), models.Q(('kind', 'adopted'), ('run__isnull', False)), _connector='OR'), name='decision_by_somebody'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(fields=('command', 'cycle'), name='incident_cycle'),
        ),
        migrations.AddConstraint(
            model_name='manifestpart',
            constraint=models.UniqueConstraint(fields=('run', 'number'), include=('oldest',), name='part_number'),
        ),
        migrations.AddConstraint(
            model_name='manifestpart',
            constraint=models.CheckConstraint(condition=models.Q(('item_count__lte', 1000), ('read__lte', 1000)), name='part_size'),
        ),
        migrations.AddIndex(
            model_name='manifestitem',
            index=models.Index(fields=['command_key'], name='item_by_command_key'),
        ),
        migrations.AddConstraint(
            model_name='manifestitem',
            constraint=models.UniqueConstraint(fields=('run', 'ordinal'), name='item_ordinal'),
        ),
        migrations.AddIndex(
            model_name='receipt',
            index=models.Index(fields=['run', 'issued_at'], name='receipt_by_run'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['settled_at'], name='attempt_by_time', pages_per_range=32),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['entered_at'], name='quarantine_by_time', pages_per_range=32),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('resolved_at__isnull', False)), fields=['resolved_at'], name='quarantine_resolved'),
        ),
        migrations.AddIndex(
            model_name='manifestpart',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['frozen_at'], name='part_by_time', pages_per_range=32),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['published_at'], name='command_by_publication', pages_per_range=32),
        ),
        migrations.AddIndex(
            model_name='cleanuprun',
            index=models.Index(condition=models.Q(('ended_at__isnull', False)), fields=['ended_at'], name='run_by_end'),
        ),
        migrations.AddIndex(
            model_name='cleanuprun',
            index=models.Index(condition=models.Q(('sealed_at__isnull', False)), fields=['-sealed_at'], name='run_by_seal'),
        ),
        migrations.AddIndex(
            model_name='cleanupcommand',
            index=models.Index(condition=models.Q(('state', ledger.states.CommandState['READY'])), fields=['tenant', 'eligible_since'], name='command_eligible'),
        ),
        migrations.AddIndex(
            model_name='receipt',
            index=models.Index(fields=['tenant', 'issued_at'], name='receipt_by_tenant'),
        ),
        migrations.AddIndex(
            model_name='receipt',
            index=django.contrib.postgres.indexes.HashIndex(fields=['digest'], name='receipt_by_digest'),
        ),
        migrations.AddIndex(
            model_name='skippeditem',
            index=models.Index(fields=['command_key'], name='skipped_by_key'),
        ),
        migrations.AddConstraint(
            model_name='skippeditem',
            constraint=models.UniqueConstraint(fields=('run', 'item_id'), name='skipped_once'),
        ),
        migrations.AddConstraint(
            model_name='turn',
            constraint=models.UniqueConstraint(fields=('bucket', 'tenant'), name='turn_unique'),
        ),
        migrations.CreateModel(
            name='ScheduleSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scheduled_for', models.DateTimeField()),
                ('outcome', models.CharField(choices=[('opened', 'Opened'), ('missed', 'Missed'), ('overlap', 'Overlap'), ('refused', 'Refused')], max_length=7)),
                ('reason', models.TextField(blank=True)),
                ('noticed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('policy', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='slots', to='retention.retentionpolicy')),
                ('run', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='slot', to='ledger.cleanuprun')),
            ],
            options={
                'verbose_name': 'schedule slot',
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(fields=('policy', 'scheduled_for'), name='slot_once'), models.CheckConstraint(condition=models.Q(models.Q(('outcome', 'opened'), ('reason', ''), ('run__isnull', False)), models.Q(models.Q(('outcome', 'opened'), _negated=True), ('run', None), models.Q(('reason', ''), _negated=True)), _connector='OR'), name='slot_opened_or_why_not')],
            },
        ),
        migrations.CreateModel(
            name='HoldReport',
            fields=[
                ('hold', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='report', serialize=False, to='retention.legalhold')),
                ('reported_at', models.DateTimeField()),
                ('in_flight', models.PositiveIntegerField(help_text='Commands that were leased or in doubt.')),
                ('marked_at', models.DateTimeField(blank=True, null=True)),
                ('acknowledged_at', models.DateTimeField(blank=True, help_text='When whoever placed the hold had read how it ended.', null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('acknowledged_at', None), ('in_flight__gt', 0)), fields=['hold'], name='hold_report_unread')],
            },
        ),
        migrations.CreateModel(
            name='InFlight',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token', models.BigIntegerField()),
                ('reported_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('ended_as', models.CharField(blank=True, help_text="The outcome that settled it, else the command's state.", max_length=14)),
                ('command', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.cleanupcommand')),
                ('report', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='commands', to='ledger.holdreport')),
            ],
            options={
                'verbose_name': 'command in flight',
                'verbose_name_plural': 'commands in flight',
                'indexes': [models.Index(condition=models.Q(('ended_at', None)), fields=['id'], name='in_flight_open')],
                'constraints': [models.UniqueConstraint(fields=('report', 'command'), name='in_flight_once'), models.CheckConstraint(condition=models.Q(models.Q(('ended_as', ''), ('ended_at', None)), models.Q(('ended_at__isnull', False), models.Q(('ended_as', ''), _negated=True)), _connector='OR'), name='in_flight_ended')],
            },
        ),
        migrations.CreateModel(
            name='ErasureRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference', models.CharField(help_text='The case, letter or ticket that demands it.', max_length=200)),
                ('authority', models.TextField(help_text='The law or order that demands the erasure.')),
                ('reason', models.TextField()),
                ('file_digest', models.CharField(help_text='SHA-256 of the list as it was filed, hex.', max_length=64)),
                ('lines', models.PositiveIntegerField(help_text='Lines of the list.')),
                ('left_out', models.JSONField(blank=True, default=list, help_text='Lines that named nothing present, and what they said.')),
                ('version_count', models.PositiveIntegerField(verbose_name='object versions')),
                ('bytes', models.PositiveBigIntegerField()),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('approved', models.BooleanField(blank=True, help_text='Empty while it waits for a decision.', null=True)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('decision_reason', models.TextField(blank=True)),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('requested_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='erasure', to='ledger.cleanuprun')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='retention.tenant')),
            ],
            options={
                'verbose_name': 'erasure request',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ErasureTarget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ordinal', models.PositiveIntegerField(help_text='Counted through the request, from 1.')),
                ('object_version_id', models.BigIntegerField(help_text='In the catalogue.')),
                ('request', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='targets', to='ledger.erasurerequest')),
            ],
        ),
        migrations.AddConstraint(
            model_name='erasurerequest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('reference', ''), _negated=True), models.Q(('authority', ''), _negated=True), models.Q(('reason', ''), _negated=True), ('version_count__gte', 1)), name='erasure_explained'),
        ),
        migrations.AddConstraint(
            model_name='erasurerequest',
            constraint=models.CheckConstraint(condition=models.Q(('decided_by', models.F('requested_by')), _negated=True), name='erasure_second_person'),
        ),
        migrations.AddConstraint(
            model_name='erasurerequest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('approved', None), ('decided_at', None), ('decided_by', None), ('decision_reason', ''), ('run', None)), models.Q(('decided_at__isnull', False), ('decided_by__isnull', False), models.Q(('decision_reason', ''), _negated=True), models.Q(models.Q(('approved', False), ('run', None)), models.Q(('approved', True), ('run__isnull', False)), _connector='OR')), _connector='OR'), name='erasure_decided_whole'),
        ),
        migrations.AddConstraint(
            model_name='erasuretarget',
            constraint=models.UniqueConstraint(fields=('request', 'ordinal'), name='erasure_target_ordinal'),
        ),
        migrations.AddConstraint(
            model_name='erasuretarget',
            constraint=models.UniqueConstraint(fields=('request', 'object_version_id'), name='erasure_target_once'),
        ),
        migrations.CreateModel(
            name='ItemDisposition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ordinal', models.PositiveBigIntegerField(help_text='Of the item, in its run.')),
                ('kind', models.CharField(choices=[('exempt', 'exempted'), ('extend', 'extended')], max_length=6)),
                ('until', models.DateTimeField(blank=True, help_text='Extended until then; empty: exempted for good.', null=True)),
                ('reason', models.TextField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('by', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('item', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.manifestitem')),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='dispositions', to='ledger.cleanuprun')),
            ],
            options={
                'verbose_name': 'exempted item',
                'ordering': ['-id'],
                'constraints': [models.UniqueConstraint(fields=('run', 'ordinal'), name='item_disposed_once'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'exempt'), ('until', None)), models.Q(('kind', 'extend'), ('until__isnull', False)), _connector='OR'), name='item_extended_until'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='item_disposition_explained')],
            },
        ),
        # Certificates, comparisons of manifests, bulk reviews.
        migrations.CreateModel(
            name='Certificate',
            fields=[
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='certificate', serialize=False, to='ledger.cleanuprun')),
                ('body', models.BinaryField()),
                ('digest', models.CharField(help_text='SHA-256 of the body, hex.', max_length=64)),
                ('issued_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
        ),
        migrations.CreateModel(
            name='ManifestComparison',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('asked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('tries', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='One more than there may be: given up.')),
                ('same', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('only_here', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('only_there', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('changed', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('changes', models.JSONField(default=dict, help_text='Changed items by what differs; one item may count in several.')),
            ],
            options={
                'verbose_name': 'manifest comparison',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ManifestDifference',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('here', 'only here'), ('there', 'only there'), ('changed', 'Changed')], max_length=7)),
                ('ordinal', models.PositiveIntegerField(help_text='Counted through its kind, from 1, in the order of the manifest.')),
                ('item_id', models.BigIntegerField(blank=True, help_text='The item of the run; empty: only there.', null=True)),
                ('other_item_id', models.BigIntegerField(blank=True, help_text='The item of the other; empty: only here.', null=True)),
            ],
            options={
                'verbose_name': 'manifest difference',
                'ordering': ['comparison', 'kind', 'ordinal'],
            },
        ),
        migrations.CreateModel(
            name='ManifestReview',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('exempt', 'exempted'), ('extend', 'extended')], max_length=6)),
                ('until', models.DateTimeField(blank=True, help_text='Extended until then; empty: exempted for good.', null=True)),
            ],
            options={
                'verbose_name': 'manifest review',
                'ordering': ['-id'],
            },
        ),
        migrations.AddIndex(
            model_name='manifestitem',
            index=models.Index(fields=['run', 'eligible_since', 'ordinal'], name='item_by_since'),
        ),
        migrations.AddField(
            model_name='certificate',
            name='issued_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='manifestcomparison',
            name='asked_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='manifestcomparison',
            name='other',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='ledger.cleanuprun'),
        ),
        migrations.AddField(
            model_name='manifestcomparison',
            name='run',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='comparisons', to='ledger.cleanuprun'),
        ),
        migrations.AddField(
            model_name='manifestdifference',
            name='comparison',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='differences', to='ledger.manifestcomparison'),
        ),
        migrations.AddField(
            model_name='manifestreview',
            name='job',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='base.bulkjob'),
        ),
        migrations.AddField(
            model_name='manifestreview',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='reviews', to='ledger.cleanuprun'),
        ),
        migrations.AddIndex(
            model_name='manifestcomparison',
            index=models.Index(condition=models.Q(('finished_at', None)), fields=['id'], name='comparison_open'),
        ),
        migrations.AddConstraint(
            model_name='manifestcomparison',
            constraint=models.UniqueConstraint(fields=('run', 'other'), name='comparison_once'),
        ),
        migrations.AddConstraint(
            model_name='manifestcomparison',
            constraint=models.CheckConstraint(condition=models.Q(('run', models.F('other')), _negated=True), name='comparison_of_two'),
        ),
        migrations.AddConstraint(
            model_name='manifestdifference',
            constraint=models.UniqueConstraint(fields=('comparison', 'kind', 'ordinal'), name='difference_once'),
        ),
        migrations.AddConstraint(
            model_name='manifestdifference',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('item_id__isnull', False), ('kind', 'here'), ('other_item_id', None)), models.Q(('item_id', None), ('kind', 'there'), ('other_item_id__isnull', False)), models.Q(('item_id__isnull', False), ('kind', 'changed'), ('other_item_id__isnull', False)), _connector='OR'), name='difference_of_its_kind'),
        ),
        migrations.AddConstraint(
            model_name='manifestreview',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'exempt'), ('until', None)), models.Q(('kind', 'extend'), ('until__isnull', False)), _connector='OR'), name='review_extends_until'),
        ),
        migrations.AddIndex(
            model_name='receipt',
            index=models.Index(fields=['issued_at'], name='receipt_issued'),
        ),
        migrations.AddIndex(
            model_name='receipt',
            index=models.Index(fields=['bucket', 'issued_at'], name='receipt_by_bucket'),
        ),
        migrations.AddIndex(
            model_name='receipt',
            index=models.Index(fields=['policy', 'issued_at'], name='receipt_by_policy'),
        ),
        migrations.AddIndex(
            model_name='receipt',
            index=models.Index(condition=models.Q(('outcome', 'deleted'), _negated=True), fields=['outcome', 'issued_at'], name='receipt_unusual'),
        ),
        migrations.AddIndex(
            model_name='receiptlocator',
            index=django.contrib.postgres.indexes.HashIndex(fields=['key'], name='locator_by_key'),
        ),
        migrations.CreateModel(
            name='ReceiptExport',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('token', models.UUIDField(help_text='Of the form: sent twice, it makes one export.', unique=True)),
                ('form', models.CharField(choices=[('people', 'for people: safe in a spreadsheet'), ('machines', 'for machines: exact, with the documents')], max_length=8)),
                ('way', models.CharField(choices=[('sent', 'Sent'), ('files', 'Files'), ('command', 'Command')], max_length=7)),
                ('selection', models.JSONField(help_text='What was asked for.')),
                ('tenants', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), blank=True, default=list, help_text='Whose receipts; empty: of every tenant.', size=None)),
                ('upto', models.BigIntegerField(help_text='It holds none with a higher number.', verbose_name='last receipt number')),
                ('expected', models.PositiveBigIntegerField(help_text='When it was asked for; an estimate above a million.', verbose_name='receipts expected')),
                ('state', models.CharField(choices=[('running', 'Running'), ('done', 'Done'), ('aborted', 'Aborted'), ('failed', 'Failed')], default='running', max_length=7)),
                ('trouble', models.TextField(blank=True, help_text='Why it did not come to its end.')),
                ('rows', models.PositiveBigIntegerField(db_default=0, default=0, verbose_name='receipts')),
                ('bytes', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('digest', models.CharField(blank=True, help_text='SHA-256 over the SHA-256 of its parts, hex.', max_length=64)),
                ('worked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('expires_at', models.DateTimeField(blank=True, help_text='Its files are removed then.', null=True)),
                ('removed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'export of receipts',
                'verbose_name_plural': 'exports of receipts',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ReceiptExportPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('rows', models.PositiveIntegerField(verbose_name='receipts')),
                ('bytes', models.PositiveBigIntegerField()),
                ('sha256', models.CharField(help_text='Of the file, hex.', max_length=64)),
                ('first_receipt', models.BigIntegerField(blank=True, null=True)),
                ('last_receipt', models.BigIntegerField(blank=True, null=True)),
                ('last_issued_at', models.DateTimeField(blank=True, help_text='The next part goes on from there.', null=True)),
                ('finished_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
            ],
            options={
                'ordering': ['export_id', 'number'],
            },
        ),
        migrations.AddField(
            model_name='receiptexport',
            name='requested_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='receiptexportpart',
            name='export',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='parts', to='ledger.receiptexport'),
        ),
        migrations.AddIndex(
            model_name='receiptexport',
            index=models.Index(condition=models.Q(('state', 'running')), fields=['worked_at'], name='export_running'),
        ),
        migrations.AddIndex(
            model_name='receiptexport',
            index=models.Index(condition=models.Q(('expires_at__isnull', False), ('removed_at', None)), fields=['expires_at'], name='export_to_remove'),
        ),
        migrations.AddConstraint(
            model_name='receiptexport',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('digest', ''), ('finished_at', None), ('state', 'running')), models.Q(('finished_at__isnull', False), ('state', 'done'), models.Q(('digest', ''), _negated=True)), models.Q(('digest', ''), ('finished_at__isnull', False), ('state__in', ['aborted', 'failed']), models.Q(('trouble', ''), _negated=True)), _connector='OR'), name='export_finished'),
        ),
        migrations.AddConstraint(
            model_name='receiptexport',
            constraint=models.CheckConstraint(condition=models.Q(('expires_at', None), models.Q(('way', 'files'), models.Q(('state', 'running'), _negated=True)), _connector='OR'), name='export_expires_with_files'),
        ),
        migrations.AddConstraint(
            model_name='receiptexport',
            constraint=models.CheckConstraint(condition=models.Q(('removed_at', None), ('expires_at__isnull', False), _connector='OR'), name='export_removed_after_expiry'),
        ),
        migrations.AddConstraint(
            model_name='receiptexportpart',
            constraint=models.UniqueConstraint(fields=('export', 'number'), name='export_part_number'),
        ),
        migrations.AddConstraint(
            model_name='receiptexportpart',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('first_receipt', None), ('last_issued_at', None), ('last_receipt', None), ('rows', 0)), models.Q(('first_receipt__isnull', False), ('last_issued_at__isnull', False), ('last_receipt__isnull', False), ('rows__gt', 0)), _connector='OR'), name='export_part_ends'),
        ),
        sqlfiles.run(__file__, "run_guard.sql", undo="DROP FUNCTION guard_run() CASCADE"),
        sqlfiles.run(__file__, "command_guard.sql", undo="DROP FUNCTION guard_command(), guard_command_lease(), guard_new_commands(), guard_target(), keep_unless_compacted() CASCADE"),
        sqlfiles.run(__file__, "inflight_guard.sql", undo="DROP FUNCTION guard_hold_report(), guard_in_flight() CASCADE"),
        sqlfiles.run(__file__, "erasure_guard.sql", undo="DROP FUNCTION guard_erasure() CASCADE"),
        sqlfiles.append_only(
            "ledger_erasuretarget", "ledger_manifestpart", "ledger_manifestitem", "ledger_skippeditem", "ledger_decision", "ledger_incident",
            "ledger_commandsummary", "ledger_receipt", "ledger_tenantsalt", "ledger_runtally",
            "ledger_scheduleslot", "ledger_outcometally", "ledger_stopreport", "ledger_itemdisposition",
            "ledger_certificate", "ledger_manifestdifference", "ledger_manifestreview",
        ),
        sqlfiles.append_only("ledger_receiptexportpart"),
        sqlfiles.run(__file__, "export_guard.sql", undo="DROP FUNCTION guard_export() CASCADE"),
    ]
