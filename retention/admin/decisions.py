"""Decisions about policies and drafts as pages: each shows what it is about, asks for what the verb wants, and calls it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import URLPattern, reverse

from cleanup_project.base import display
from cleanup_project.base.modeladmin import Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from retention import policies, preview
from retention.admin.scope import ScopeForm
from retention.models import PolicyRevision, RetentionPolicy

Act = Callable[[dict[str, Any]], tuple[Model, str]]


class ConfirmForm(forms.ModelForm[Any]):
    """Asks for nothing. The verb judges the row, this form does not."""

    def _post_clean(self) -> None:
        pass


class PublishForm(ReasonForm):
    """Beside the reason, which draft was shown: what was edited since is not what its second person has read."""

    digest = forms.CharField(widget=forms.HiddenInput)


class RescheduleForm(ReasonForm):
    class Meta:
        model = RetentionPolicy
        fields = ("schedule", "missed_slots")
        help_texts = {
            "schedule": "Five cron fields in UTC: minute, hour, day of the month, month, day of the week.",
            "missed_slots": "What to do about a slot that nobody answered in time, because no worker ran.",
        }


class PolicyDecisions(VerbPages[RetentionPolicy]):
    """Suspend, resume, reschedule."""

    def get_urls(self) -> list[Any]:
        own: list[URLPattern] = [
            self.verb_url("suspend", self.suspend_view),
            self.verb_url("resume", self.resume_view),
            self.verb_url("reschedule", self.reschedule_view),
        ]
        return own + super().get_urls()

    def tools(self, request: HttpRequest, obj: RetentionPolicy) -> Iterable[Tool]:
        if request.user.has_perm("base.draft_policy"):
            yield Tool("Draft a revision", f"{reverse('admin:retention_policyrevision_add')}?policy={obj.pk}")
        if request.user.has_perm("base.publish_policy"):
            verb = "suspend" if obj.suspended_at is None else "resume"
            alone = obj.suspended_at is not None and obj.suspended_by_id == request.user.pk
            for name in ("reschedule",) if alone else (verb, "reschedule"):
                yield Tool(name.capitalize(), reverse(f"admin:retention_retentionpolicy_{name}", args=[obj.pk]))

    def suspend_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(values: dict[str, Any], obj: RetentionPolicy) -> tuple[Model, str]:
            policy = policies.suspend(policy=obj, by=person(request), reason=values["reason"])
            return policy, f"Policy {policy} is suspended: it destroys nothing, and keeps all that it covers."

        about = "From now on it destroys nothing, and what it covers is kept whatever other policies say. Runs stop at once."
        return self.decide(request, object_id, ReasonForm, ("reason",), act, "Suspend", about)

    def resume_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(values: dict[str, Any], obj: RetentionPolicy) -> tuple[Model, str]:
            policy = policies.resume(policy=obj, by=person(request), reason=values["reason"])
            return policy, f"Policy {policy} is resumed: the next slot of its schedule opens a run."

        about = "It destroys again. That takes another person than the one who suspended it."
        return self.decide(request, object_id, ReasonForm, ("reason",), act, "Resume", about)

    def reschedule_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(values: dict[str, Any], obj: RetentionPolicy) -> tuple[Model, str]:
            policy = policies.reschedule(policy=obj, by=person(request), **values)
            return policy, f"Policy {policy} opens runs by {policy.schedule} (UTC) from now on."

        about = "When runs are opened. Slots count from now on."
        fields = ("schedule", "missed_slots", "reason")
        return self.decide(request, object_id, RescheduleForm, fields, act, "Reschedule", about)

    def decide(
        self,
        request: HttpRequest,
        object_id: int,
        form: type[ReasonForm],
        asked: tuple[str, ...],
        act: Callable[[dict[str, Any], RetentionPolicy], tuple[Model, str]],
        button: str,
        about: str,
    ) -> HttpResponse:
        """One decision about a policy, whose state is shown above it."""
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.publish_policy"):
            raise PermissionDenied
        names = tuple(name for name in asked if name != "reason")
        bound = forms.modelform_factory(RetentionPolicy, form=form, fields=names)(posted(request), instance=obj)
        shown = tuple(
            self.presented(name) for name in ("code", "tenant", "suspended_at", "suspended_by", "suspended_reason")
        )
        return self.verb_page(
            request,
            bound,
            lambda values: act(values, obj),
            title=f"{button} a policy",
            button=button,
            fieldsets=[(None, {"fields": shown}), ("Your decision", {"fields": asked})],
            readonly=shown,
            about=about,
            obj=obj,
            deciding=button != "Suspend",
        )


class RevisionDecisions(VerbPages[PolicyRevision]):
    """Edit, preview, submit, send back, publish, discard. `edit_form` says all that a revision does, but for its policy."""

    edit_form: ClassVar[type[ScopeForm]]

    def get_urls(self) -> list[Any]:
        own: list[URLPattern] = [
            self.verb_url("edit", self.edit_view),
            self.verb_url("preview", self.preview_view),
            self.verb_url("submit", self.submit_view),
            self.verb_url("send_back", self.send_back_view),
            self.verb_url("publish", self.publish_view),
            self.verb_url("discard", self.discard_view),
        ]
        return own + super().get_urls()

    def tools(self, request: HttpRequest, obj: PolicyRevision) -> Iterable[Tool]:
        for verb, label in self.verbs(request, obj):
            yield Tool(label, reverse(f"admin:retention_policyrevision_{verb}", args=[obj.pk]))
        if request.user.has_perm("base.draft_policy"):
            yield Tool("Draft the next from this", f"{reverse('admin:retention_policyrevision_add')}?from={obj.pk}")

    def verbs(self, request: HttpRequest, obj: PolicyRevision) -> Iterator[tuple[str, str]]:
        """What the person may do with a draft now, as (verb, label); the verb itself judges again."""
        if obj.published_at is not None:
            return
        drafts, publishes = (request.user.has_perm(f"base.{right}") for right in ("draft_policy", "publish_policy"))
        if drafts:
            yield "edit", "Edit"
        if drafts or publishes:
            yield "preview", "Preview"
        if drafts and obj.submitted_at is None:
            yield "submit", "Submit"
        if publishes and obj.submitted_at is not None:
            yield "publish", "Publish"
            yield "send_back", "Send back"
        if drafts:
            yield "discard", "Discard"

    def edit_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.allowed(request, object_id, "draft_policy")
        form = self.edit_form(
            posted(request), instance=obj, initial={"retroactive": "yes" if obj.retroactive else "no"}
        )

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            revision = policies.edit(revision=obj, by=person(request), **values)
            return (
                revision,
                f"Draft {revision} saved. It changes nothing until it is previewed, submitted and published.",
            )

        return self.verb_page(
            request,
            form,
            act,
            title="Edit a draft",
            button="Save draft",
            fieldsets=self.edit_form.fieldsets,
            about="Saving is not publishing. Whoever changes a draft may not be the second person who publishes it.",
            obj=obj,
        )

    def preview_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.allowed(request, object_id, "draft_policy", "publish_policy")

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            return preview.request(revision=obj, by=person(request)), "The preview has begun; nothing else has."

        about = (
            "Counts what this draft would make eligible now, in 30 and in 90 days, and what would change against today's "
            "rules: about, at once, and exactly, in the background."
        )
        return self.draft_page(request, obj, ConfirmForm, act, "Preview the impact", "Preview", about)

    def submit_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.allowed(request, object_id, "draft_policy")

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            revision = policies.submit(revision=obj, by=person(request))
            return revision, f"Revision {revision} is submitted. A second person publishes it or sends it back."

        about = "Hands the draft to whoever publishes it. Editing takes it back."
        return self.draft_page(request, obj, ConfirmForm, act, "Submit a draft", "Submit", about)

    def send_back_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.allowed(request, object_id, "publish_policy")

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            revision = policies.send_back(revision=obj, by=person(request), reason=values["reason"])
            return revision, f"Revision {revision} is a draft again: whoever drafts edits it, and submits it anew."

        about = "Returns it to its drafters, who see your reason in its history."
        return self.draft_page(request, obj, ReasonForm, act, "Send a draft back", "Send back", about)

    def discard_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.allowed(request, object_id, "draft_policy")

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            policies.discard(revision=obj, by=person(request), reason=values["reason"])
            return obj.policy, f"Draft {obj} is discarded. What it said stays in the history of its policy."

        about = "Removes the draft and its previews. What it said stays in the history of its policy."
        return self.draft_page(request, obj, ReasonForm, act, "Discard a draft", "Discard", about)

    def publish_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.allowed(request, object_id, "publish_policy")

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            revision = policies.publish(revision=obj, by=person(request), **values)
            return revision, published_words(revision)

        delay = obj.tenant.shortening_delay_hours
        force = f"comes into force {display.counted(delay, 'hour')} later" if delay else "comes into force at once"
        about = (
            "Once published, a revision never changes; only a later revision can supersede it. Unless it provably only "
            f"lengthens or narrows, it takes a second person and {force}."
        )
        return self.draft_page(request, obj, PublishForm, act, "Publish a policy revision", "Publish", about)

    def allowed(self, request: HttpRequest, object_id: int, *rights: str) -> PolicyRevision:
        """The draft, for whoever has any of these rights."""
        obj = self.wanted(request, str(object_id))
        if not any(request.user.has_perm(f"base.{right}") for right in rights):
            raise PermissionDenied
        return obj

    def draft_page(
        self,
        request: HttpRequest,
        obj: PolicyRevision,
        form: type[forms.ModelForm[Any]],
        act: Act,
        title: str,
        button: str,
        about: str,
    ) -> HttpResponse:
        """One decision about a draft, with its impact, what it changes and all that it says before it."""
        made = forms.modelform_factory(PolicyRevision, form=form, fields=())
        bound = made(posted(request), instance=obj, initial={"digest": preview.digest_of(obj)})
        asked = [("Your decision", {"fields": tuple(bound.fields)})] if bound.fields else []
        return self.verb_page(
            request,
            bound,
            act,
            title=title,
            button=button,
            fieldsets=[*self.get_fieldsets(request, obj), *asked],
            readonly=self.get_readonly_fields(request, obj),
            about=about,
            obj=obj,
            deciding=form is PublishForm,
        )


def posted(request: HttpRequest) -> QueryDict | None:
    """What was posted, if only that it was: a form without fields is decided by sending it."""
    return request.POST if request.method == "POST" else None


def published_words(revision: PolicyRevision) -> str:
    assert revision.in_force_from is not None
    assert revision.published_at is not None
    if revision.only_lengthens:
        known = "It provably only lengthens or narrows. "
    elif revision.in_force_from > revision.published_at:
        known = "Until then, what was published before goes on. "
    else:
        known = ""
    begin = f"In force from {revision.in_force_from:%Y-%m-%d %H:%M} UTC on."
    return f"Revision {revision} published. {begin} {known}It never changes from now on."
