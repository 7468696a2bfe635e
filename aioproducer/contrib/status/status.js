"use strict";
// Shows the events of the service. Everything from it is put into the page as text, never as markup.
(() => {
  const WINDOW_MS = 300000, GAP_MS = 4000, LOST_MS = 5000;
  const LEVELS = { ok: "OK", note: "Note", warning: "Warning", problem: "Problem" };
  const SVG = "http://www.w3.org/2000/svg";
  const sections = new Map();
  let instance = null, heardAt = Date.now(), state = "";

  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const number = value => (Math.abs(value) < 10 ? fine : whole).format(value);
  const none = "–";

  const plural = (value, noun) => `${number(value)} ${noun}${number(value) === "1" ? "" : "s"}`;
  const ms = value => value === null || value === undefined ? none
    : value >= 1000 ? `${fine.format(value / 1000)} s` : value < 0.05 ? "0 ms" : `${number(value)} ms`;
  const bytes = value => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    return `${number(value)} ${units[unit]}`;
  };
  const percent = share => `${number(share * 100)} %`;

  const CHARTS = [
    { name: "Throughput", of: ["records_per_s"], words: ["records a second"], unit: v => `${number(v)}/s`,
      value: now => `${number(now.records_per_s)} records/s`, beside: now => `${bytes(now.bytes_per_s)}/s` },
    { name: "Latency of brokers: median, p99", of: ["latency_p50_ms", "latency_p99_ms"],
      words: ["median", "99th percentile"], unit: ms, value: now => ms(now.latency_p50_ms),
      beside: now => `p99 ${ms(now.latency_p99_ms)}` },
    { name: "Buffer in use", of: ["buffer_share"], words: ["share in use"], unit: percent, least: 1,
      value: now => percent(now.buffer_share),
      beside: now => now.waiting_callers
        ? `${plural(now.waiting_callers, "caller")} ${now.waiting_callers === 1 ? "waits" : "wait"}`
        : `${bytes(now.buffer_bytes)} of ${bytes(now.buffer_total_bytes)}` },
    { name: "Requests in flight", of: ["requests_in_flight"], words: ["requests"], unit: number, least: 5,
      value: now => plural(now.requests_in_flight, "request"),
      beside: now => `${plural(now.pending_records, "record")} pending` },
    { name: "Event loop lag", of: ["loop_lag_ms"], words: ["lag"], unit: ms, least: 10,
      value: now => ms(now.loop_lag_ms), beside: () => "longest delay" },
    { name: "Failed and retried records", of: ["failed_per_s", "retried_per_s"], words: ["failed", "retried"],
      unit: v => `${number(v)}/s`, least: 1, value: now => `${number(now.failed_per_s)} failed/s`,
      beside: now => `${number(now.retried_per_s)} retried/s` },
  ];

  const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const make = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const clone = id => document.getElementById(id).content.firstElementChild.cloneNode(true);
  const line = className => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", className);
    return path;
  };

  function makeChart(chart) {
    const figure = clone("chart"), svg = figure.querySelector("svg");
    figure.querySelector(".name").textContent = chart.name;
    const base = line("base"), area = line("area"), lines = chart.of.map((_, i) => line(i ? "second" : "first"));
    base.setAttribute("d", "M0 71.5H300");
    svg.append(base, area, ...lines.slice().reverse());
    return { chart, figure, svg, area, lines };
  }

  function drawChart({ chart, figure, svg, area, lines }, points, now) {
    const end = points.length ? points[points.length - 1].at_ms : 0;
    const seen = points.flatMap(point => chart.of.map(name => point[name])).filter(value => value !== null);
    const most = Math.max(chart.least || 0, ...seen);
    const x = point => (300 - (end - point.at_ms) / WINDOW_MS * 300).toFixed(1);
    const y = value => (70 - (most ? value / most : 0) * 66).toFixed(1);
    chart.of.forEach((name, index) => {
      const runs = [];
      let last = null;
      for (const point of points) {
        if (point[name] === null) { last = null; continue; }
        if (last === null || point.at_ms - last.at_ms > GAP_MS) runs.push([]);
        runs[runs.length - 1].push(`${x(point)} ${y(point[name])}`);
        last = point;
      }
      const drawn = runs.map(run => `M${run.length === 1 ? `${run[0]} ${run[0]}` : run.join("L")}`);
      lines[index].setAttribute("d", drawn.join(""));
      if (index === 0) {
        area.setAttribute("d", runs.map(run =>
          `M${run[0].split(" ")[0]} 71.5L${run.join("L")}L${run[run.length - 1].split(" ")[0]} 71.5Z`).join(""));
      }
    });
    const value = chart.value(now), beside = chart.beside(now);
    put(figure.querySelector(".value"), value);
    put(figure.querySelector(".beside"), beside);
    put(figure.querySelector(".top-of"), seen.length ? `scale to ${chart.unit(most)}` : "");
    const spoken = chart.of.map((name, index) => {
      const values = points.map(point => point[name]).filter(each => each !== null);
      return values.length
        ? `${chart.words[index]} between ${chart.unit(Math.min(...values))} and ${chart.unit(Math.max(...values))}`
        : `no ${chart.words[index]} yet`;
    });
    svg.setAttribute("aria-label", `${chart.name}, last five minutes: ${spoken.join("; ")}. Now ${value}, ${beside}.`);
  }

  function makeSection(producer, index) {
    const element = clone("producer"), heading = element.querySelector("h2");
    element.id = `producer-${index}`;
    heading.id = `producer-${index}-name`;
    heading.textContent = producer.client_id;
    element.setAttribute("aria-labelledby", heading.id);
    for (const region of element.querySelectorAll(".scroll")) {
      region.setAttribute("aria-label", `${region.querySelector("caption").textContent} of ${producer.client_id}`);
    }
    const charts = CHARTS.map(makeChart);
    element.querySelector(".charts").append(...charts.map(each => each.figure));
    document.getElementById("producers").append(element);
    const link = make("a", "", producer.client_id);
    link.href = `#${element.id}`;
    document.getElementById("jump").append(link);
    return { element, charts, link, points: [], shown: "" };
  }

  // Text with `code` in it, as nodes.
  function withCode(parent, text) {
    text.split("`").forEach((part, index) => {
      if (part) parent.append(index % 2 ? make("code", "", part) : document.createTextNode(part));
    });
    return parent;
  }

  function showFindings(section, findings) {
    const key = JSON.stringify(findings);
    if (key === section.shown) return; // else a screen reader would repeat it each second
    section.shown = key;
    section.element.querySelector(".findings").replaceChildren(...findings.map(finding => {
      const item = make("li", finding.level), text = make("p", "text");
      text.append(make("span", "level", LEVELS[finding.level]));
      item.append(withCode(text, finding.text));
      if (finding.advice) item.append(withCode(make("p", "advice"), finding.advice));
      return item;
    }));
  }

  function showRows(table, rows, empty) {
    const body = table.tBodies[0], columns = table.tHead.rows[0].cells.length;
    const key = rows.map(row => row.key).join("\u0000");
    if (body.dataset.key !== key || !body.rows.length) {
      body.dataset.key = key;
      body.replaceChildren(...rows.map(row => {
        const tr = make("tr"), head = make("th", "", row.key);
        head.scope = "row";
        tr.append(head, ...row.cells.map(() => make("td", "n")));
        return tr;
      }));
      if (!rows.length) {
        const tr = make("tr"), cell = make("td", "empty", empty);
        cell.colSpan = columns;
        tr.append(cell);
        body.append(tr);
      }
    }
    rows.forEach((row, index) => row.cells.forEach((cell, column) => {
      const td = body.rows[index].cells[column + 1], [text, bad] = Array.isArray(cell) ? cell : [cell, false];
      put(td, text);
      td.classList.toggle("bad", Boolean(bad));
    }));
  }

  function showTables(element, producer) {
    showRows(element.querySelector(".brokers"), producer.brokers.map(each => ({
      key: `${each.broker}${each.connected ? "" : " (not connected)"}`,
      cells: [
        number(each.requests_in_flight),
        [each.oldest_request_s ? ms(each.oldest_request_s * 1000) : none, each.oldest_request_s >= 2],
        ms(each.latency_mean_ms), ms(each.latency_p99_ms), `${number(each.answers_per_s)}/s`,
      ],
    })), "No broker was connected yet.");
    showRows(element.querySelector(".topics"), producer.topics.map(each => ({
      key: each.topic,
      cells: [
        `${number(each.records_per_s)}/s`, `${bytes(each.bytes_per_s)}/s`,
        [whole.format(each.failed_total), each.failed_total > 0], whole.format(each.retried_total),
      ],
    })), "No record has an outcome yet.");
    const more = element.querySelector(".more");
    more.hidden = !producer.more_topics;
    put(more, `${plural(producer.more_topics, "topic")} more in stats.json`);
  }

  function showTotals(element, totals) {
    const list = element.querySelector(".totals");
    const shown = [
      ["Written since the start", totals.written], ["Not written", totals.not_written],
      ["May be written or not", totals.unknown], ["Retried", totals.retried],
    ];
    if (!list.children.length) {
      list.append(...shown.map(([name]) => {
        const pair = make("div");
        pair.append(make("dt", "", name), make("dd"));
        return pair;
      }));
    }
    shown.forEach(([, value], index) => put(list.children[index].lastChild, `${whole.format(value)} record${value === 1 ? "" : "s"}`));
  }

  function showProducer(producer, index) {
    if (!sections.has(producer.client_id)) sections.set(producer.client_id, makeSection(producer, index));
    const section = sections.get(producer.client_id), { element } = section;
    section.points.push(...producer.points);
    const end = section.points.length ? section.points[section.points.length - 1].at_ms : 0;
    section.points = section.points.filter(point => point.at_ms > end - WINDOW_MS);
    const badge = element.querySelector(".badge");
    put(badge, producer.ready ? "ready" : producer.health.ready ? "not ready" : `not ready: ${producer.health.status}`);
    badge.classList.toggle("problem", !producer.ready);
    section.link.classList.toggle("problem", !producer.ready);
    put(element.querySelector(".servers"), producer.servers.join(", "));
    showFindings(section, producer.findings);
    section.charts.forEach(chart => drawChart(chart, section.points, producer.now));
    showTables(element, producer);
    showTotals(element, producer.totals);
  }

  function showLink(next) {
    if (next === state) return;
    state = next;
    const link = document.getElementById("link");
    link.className = `link ${next}`;
    link.textContent = next === "live" ? "Live" : "Connection to the service lost. Trying again …";
    document.body.classList.toggle("is-lost", next === "lost");
  }

  function show(event) {
    const content = JSON.parse(event.data);
    if (content.instance !== instance) { // the service was restarted, or another worker answers
      instance = content.instance;
      for (const section of sections.values()) section.points = [];
    }
    heardAt = Date.now();
    showLink("live");
    content.producers.forEach(showProducer);
    document.getElementById("jump").hidden = content.producers.length < 2;
    const troubled = content.producers.filter(each => !each.ready).length;
    const title = `${troubled ? `(${troubled} not ready) ` : ""}Kafka producers`;
    if (document.title !== title) document.title = title;
  }

  let source;
  function connect() {
    if (source) source.close();
    source = new EventSource("events");
    source.addEventListener("message", show);
  }
  connect();
  setInterval(() => {
    if (Date.now() - heardAt > LOST_MS) {
      showLink("lost");
      if (source.readyState === EventSource.CLOSED) connect(); // a browser does not retry after an error of the server
    }
  }, 1000);
})();
