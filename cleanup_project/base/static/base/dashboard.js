// Draws each chart of the dashboard from the table beside it, and keeps what was folded out when the figures come anew.
"use strict";
{
    const NAMES = ["p50", "p95", "p99", "max"];
    const DASHES = [[], [8, 4], [3, 3], [2, 5]]; // colour alone would not tell them apart
    const TICKS = [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000, 31536000, 315360000];
    const charts = [];

    const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const lasting = (seconds) => {
        if (seconds === null || seconds === undefined) return "-";
        if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
        if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
        if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
        return seconds < 86400 ? `${Number((seconds / 3600).toPrecision(3))} h` : `${Number((seconds / 86400).toPrecision(3))} d`;
    };

    // In UTC, as everywhere: the time within a day, else the day.
    const moment = (seconds, length) => {
        const iso = new Date(seconds * 1000).toISOString();
        return length <= 86400 ? iso.slice(11, 16) : iso.slice(5, 10);
    };

    // [times, p50, p95, p99, max], the oldest first; where nothing happened a null breaks the line.
    const points = (table, step) => {
        const columns = [[], [], [], [], []];
        const rows = [...table.tBodies[0].rows].reverse();
        for (const row of rows) {
            const at = Date.parse(row.querySelector("time").dateTime) / 1000;
            const last = columns[0].at(-1);
            if (last !== undefined && at > last + step) {
                columns.forEach((column, index) => column.push(index ? null : last + step));
            }
            columns[0].push(at);
            row.querySelectorAll("data").forEach((data, index) => columns[index + 1].push(Number(data.value) || null));
        }
        return columns;
    };

    const draw = (place) => {
        const table = document.getElementById(place.dataset.chart);
        if (!table || !window.uPlot) return;
        const axis = { stroke: token("--body-quiet-color"), grid: { stroke: token("--hairline-color"), width: 1 } };
        const strokes = ["--link-fg", "--good", "--waiting-edge", "--overdue-edge"].map(token);
        const until = Number(place.dataset.until);
        charts.push([place, new uPlot({
            width: place.clientWidth,
            height: 220,
            tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
            scales: { x: { range: [until - Number(place.dataset.length), until] }, y: { distr: 3 } },
            cursor: { drag: { x: false, y: false } },
            axes: [
                { ...axis, values: (_, ticks) => ticks.map((tick) => moment(tick, Number(place.dataset.length))) },
                {
                    ...axis,
                    size: 64,
                    splits: (_, _axis, least, most) => TICKS.filter((tick) => tick >= least && tick <= most),
                    filter: (_, ticks) => ticks,
                    values: (_, ticks) => ticks.map(lasting),
                },
            ],
            series: [
                { label: "from", value: "{YYYY}-{MM}-{DD} {HH}:{mm} UTC" },
                ...NAMES.map((label, index) => ({
                    label, stroke: strokes[index], dash: DASHES[index], width: 2, points: { size: 5 },
                    value: (_, seconds) => lasting(seconds),
                })),
            ],
        }, points(table, Number(place.dataset.step)), place)]);
    };

    const drawAll = () => {
        for (const [, chart] of charts.splice(0)) chart.destroy();
        document.querySelectorAll("[data-chart]").forEach(draw);
    };

    const figures = () => document.getElementById("figures");
    const mine = (event) => event.detail.target === figures();
    let opened = [];
    document.addEventListener("DOMContentLoaded", drawAll);
    document.addEventListener("htmx:beforeSwap", (event) => {
        if (!mine(event)) return;
        if (new URL(event.detail.xhr.responseURL).pathname !== location.pathname) {
            event.detail.shouldSwap = false; // the session has ended: that page is no fragment
            location.reload();
            return;
        }
        opened = [...figures().querySelectorAll("details[open]")].map((each) => [each.id, each.querySelector(".scroll")?.scrollTop]);
    });
    document.addEventListener("htmx:afterSwap", (event) => {
        if (!mine(event)) return;
        for (const [id, scrolled] of opened) {
            const details = document.getElementById(id);
            if (details) {
                details.open = true;
                details.querySelector(".scroll").scrollTop = scrolled;
            }
        }
        document.getElementById("stale").hidden = true;
        drawAll();
    });
    for (const trouble of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
        document.addEventListener(trouble, () => { document.getElementById("stale").hidden = false; });
    }
    window.addEventListener("resize", () => {
        for (const [place, chart] of charts) chart.setSize({ width: place.clientWidth, height: 220 });
    });
    // The colours of a chart are painted: with another theme they are painted anew.
    new MutationObserver(drawAll).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
}
