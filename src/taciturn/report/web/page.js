"use strict";
// Draws what the page's JSON says; a live page asks its server for newer JSON.
{
  const element = (name) => document.getElementById(name);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const hidden = new Set(); // names of arms
  let shown = JSON.parse(element("content").textContent);

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function layout(panel) {
    const ink = colour("--ink"), grid = colour("--rule");
    const axis = (own) => ({
      gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true, ...own,
      title: { text: "", standoff: 8, font: { size: 13 }, ...own.title },
    });
    return {
      xaxis: axis(panel.layout.xaxis),
      yaxis: axis(panel.layout.yaxis),
      font: { color: ink, family: "system-ui, sans-serif", size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: ink },
      hoverlabel: { bgcolor: colour("--back"), bordercolor: grid, font: { color: ink } },
      margin: { l: 8, r: 16, t: touch ? 8 : 30, b: 8 }, // the toolbar stands above the curves
      showlegend: false, hovermode: "closest",
      dragmode: touch ? false : "zoom", // a finger that moves scrolls the page
      uirevision: "same", // what was zoomed stays so when more rounds come
    };
  }

  // Before anything is drawn, so that figures find the width that they will have.
  function places() {
    for (const panel of shown.panels.filter((one) => !element(`plot-${one.key}`))) {
      const card = document.createElement("div");
      const title = document.createElement("h2");
      const note = document.createElement("p");
      const plot = document.createElement("div");
      card.className = "panel";
      title.textContent = panel.title;
      plot.id = `plot-${panel.key}`;
      plot.className = "plot";
      card.append(title, note, plot);
      element("panels").append(card);
    }
  }

  let drawing = 0; // a drawing that another one overtakes ends

  async function draw() {
    const mine = ++drawing;
    for (const panel of shown.panels) {
      const traces = panel.data.map((trace) => ({
        ...trace, visible: !hidden.has(shown.arms[trace.meta].name),
      }));
      element(`plot-${panel.key}`).previousSibling.textContent = panel.note;
      Plotly.react(`plot-${panel.key}`, traces, layout(panel), {
        responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover",
        showSendToCloud: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      });
      await new Promise((go) => setTimeout(go)); // so that what is drawn is seen
      if (mine !== drawing) return;
    }
  }

  function legend() {
    const buttons = shown.arms.map((arm) => {
      const button = document.createElement("button");
      const line = document.createElement("i");
      line.className = `line ${arm.dash}`;
      line.style.color = arm.colour;
      button.append(line, arm.name);
      button.setAttribute("aria-pressed", String(!hidden.has(arm.name)));
      button.addEventListener("click", () => {
        if (!hidden.delete(arm.name)) hidden.add(arm.name);
        button.setAttribute("aria-pressed", String(!hidden.has(arm.name)));
        draw();
      });
      return button;
    });
    element("legend").replaceChildren(...buttons);
  }

  function show() {
    element("title").textContent = document.title = shown.title;
    element("subtitle").textContent = shown.subtitle;
    for (const part of ["savings", "tables"]) {
      element(part).innerHTML = shown[part]; // made and escaped by report/page.py
    }
    legend();
    places();
    draw();
  }

  async function follow() {
    let status;
    try {
      const answer = await fetch(`data.json?known=${encodeURIComponent(shown.version)}`);
      if (!answer.ok) throw new Error(answer.statusText);
      if (answer.status === 200) {
        shown = await answer.json();
        show();
      }
      status = shown.ended ? "ended" : "live";
    } catch {
      status = "no answer: this is the last that was heard";
    }
    element("status").textContent = status;
    setTimeout(follow, 2000);
  }

  show();
  dark.addEventListener("change", draw);
  if (document.body.dataset.live === "true") follow();
}
