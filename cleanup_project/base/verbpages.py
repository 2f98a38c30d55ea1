"""Pages that show a form and call one verb: what the verb refuses comes back as a message, with the form as it was."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from cleanup_project.base import display
from cleanup_project.base.modeladmin import RecordAdmin, person
from cleanup_project.base.signin import proof

M = TypeVar("M", bound=Model)
AnyForm = TypeVar("AnyForm", bound=forms.BaseForm)
Fieldsets = Sequence[tuple[str | None, dict[str, Any]]]


def offered(form: AnyForm, request: HttpRequest) -> AnyForm:
    """The form, with choices of rows narrowed to those that this person may see."""
    for field in form.fields.values():
        if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
            pages = admin.site._registry.get(field.queryset.model)
            if isinstance(pages, RecordAdmin):
                field.queryset = pages.own(field.queryset, person(request))
    return form


class ReasonForm(forms.ModelForm[Model]):
    """Asks for a reason. The verb judges the row, this form does not."""

    reason = forms.CharField(widget=forms.Textarea(attrs={"rows": 3, "cols": 80}), help_text="Kept for ever.")

    def _post_clean(self) -> None:
        pass


class VerbPages(RecordAdmin[M]):
    """Mixin. `refusals` are the exceptions by which the verbs of this application refuse."""

    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    def verb_page(
        self,
        request: HttpRequest,
        form: forms.BaseForm,
        act: Callable[[dict[str, Any]], tuple[Model, str]],
        *,
        title: str,
        button: str,
        fieldsets: Fieldsets,
        about: str = "",
        readonly: Sequence[Any] = (),
        obj: M | None = None,
        template: str = "admin/verb.html",
        shown: Mapping[str, Any] | None = None,
        deciding: bool = False,
    ) -> HttpResponse:
        """Show the form; when it is posted and valid, `act` calls the verb and returns (row to show, message).

        `shown` is what the template shows beside the form. `deciding`: before the verb is called, the person shows again who
        they are, unless they did a short while ago.
        """
        offered(form, request)
        if deciding and request.method == "POST" and (asked := proof.ask(request, title)):
            return asked
        if request.method == "POST" and form.is_valid():
            try:
                row, message = act(form.cleaned_data)
            except ValidationError as error:
                add_errors(form, error)
            except self.refusals as refusal:
                field = getattr(refusal, "field", None)
                form.add_error(field if field in form.fields else None, str(refusal))
            else:
                messages.success(request, message)
                return HttpResponseRedirect(display.change_url(row))
        context = {**(shown or {}), "button": button, "about": about}
        return self.form_page(request, form, template, context, title, fieldsets, readonly, obj)

    def form_page(
        self,
        request: HttpRequest,
        form: Any,
        template: str | list[str],
        context: dict[str, Any],
        title: str,
        fieldsets: Fieldsets,
        readonly: Sequence[Any] = (),
        obj: M | None = None,
    ) -> HttpResponse:
        """A form in the dress of the admin's own."""
        shadowed = set(form.fields) & set(readonly)
        assert not shadowed, f"{shadowed} would be shown as the row has them, and could not be filled in"
        adminform = helpers.AdminForm(form, list(fieldsets), {}, list(readonly), model_admin=self)
        context |= {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": display.visible(str(obj)) if obj else None,
            "adminform": adminform,
            "errors": helpers.AdminErrorList(form, []),
            "media": self.media + adminform.media,
            "opts": self.opts,
            "original": obj,
            "add": obj is None,
            "has_view_permission": True,
            "has_file_field": form.is_multipart(),
        }
        return TemplateResponse(request, template, context)

    def secret_page(
        self, request: HttpRequest, obj: M, secret: str, title: str, about: str, next_step: str
    ) -> HttpResponse:
        """The answer to the POST itself: the secret is in no message, session, address or cache."""
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": display.visible(str(obj)),
            "opts": self.opts,
            "original": obj,
            "secret": secret,
            "about": about,
            "next_step": next_step,
            "url": display.change_url(obj),
        }
        return TemplateResponse(request, "admin/secret.html", context, headers={"Cache-Control": "no-store"})

    def wanted(self, request: HttpRequest, object_id: str) -> M:
        """The row that a decision is about, for whoever may see it."""
        obj = self.get_object(request, object_id)
        if obj is None:
            raise Http404(f"There is no {self.opts.verbose_name} {object_id}.")
        if not self.has_view_permission(request, obj):
            raise PermissionDenied
        return obj

    def verb_url(self, name: str, view: Callable[..., HttpResponse]) -> URLPattern:
        """`<id>/<name>/`, known as `admin:<app>_<model>_<name>`."""
        return path(
            f"<int:object_id>/{name}/",
            self.admin_site.admin_view(view),
            name=f"{self.opts.app_label}_{self.opts.model_name}_{name}",
        )


def add_errors(form: forms.BaseForm, error: ValidationError) -> None:
    """Put each message beside its field, or on top where the form has no such field."""
    if not hasattr(error, "error_dict"):
        form.add_error(None, error)
        return
    for field, found in error.error_dict.items():
        form.add_error(field if field in form.fields else None, found)


__all__ = ["Fieldsets", "ReasonForm", "VerbPages", "add_errors", "offered", "person"]
