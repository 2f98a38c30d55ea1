// What every page needs of a script. htmx may not evaluate anything here, so conditions stand here and not in its attributes.
"use strict";
{
    // Nothing is asked for while nobody sees the page; shown again, it catches up at once.
    document.addEventListener("htmx:beforeRequest", (event) => {
        if (document.hidden) {
            event.preventDefault();
        }
    });
    document.addEventListener("visibilitychange", () => {
        if (!document.hidden) {
            for (const polling of document.querySelectorAll('[hx-get][hx-trigger*="every "]')) {
                htmx.ajax("GET", polling.getAttribute("hx-get"), { source: polling });
            }
        }
    });

    // What is swapped takes the focus along, if it was on a link that is there again.
    let focused = null;
    document.addEventListener("htmx:beforeSwap", () => {
        focused = document.activeElement.getAttribute("href");
    });
    document.addEventListener("htmx:afterSettle", () => {
        if (focused !== null && document.activeElement === document.body) {
            document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
        }
        focused = null;
    });

    // UTC is what is shown; what it is where the reader sits is said when they point at it.
    const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
    const tellLocalTimes = () => {
        for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
            const at = new Date(time.dateTime);
            if (!Number.isNaN(at.getTime())) {
                time.title = `${local.format(at)}, your time`;
            }
        }
    };
    document.addEventListener("DOMContentLoaded", tellLocalTimes);
    document.addEventListener("htmx:afterSettle", tellLocalTimes);

    // What was folded out over a page folds in when one turns to something else.
    const over = "details.me[open], details.choice[open]";
    document.addEventListener("click", (event) => {
        for (const open of document.querySelectorAll(over)) {
            if (!open.contains(event.target)) {
                open.open = false;
            }
        }
    });
    document.addEventListener("keydown", (event) => {
        if (event.key === "Escape") {
            for (const open of document.querySelectorAll(over)) {
                open.open = false;
                open.querySelector("summary").focus();
            }
        }
    });
}
