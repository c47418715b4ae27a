// Draws the charts when they come into sight, in the page's own colours, and again when those change.
(() => {
  "use strict";
  const charts = [...document.querySelectorAll("[data-chart]")];
  const drawn = new Set();

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    return (_, value) =>
      typeof value === "string" && value[0] === "$" ? style.getPropertyValue("--" + value.slice(1)).trim() : value;
  };

  const draw = (chart, width) => {
    const spec = JSON.parse(document.getElementById(chart.dataset.chart).textContent, colours());
    if (width) spec.layout.width = width;
    drawn.add(chart);
    return Plotly.react(chart, spec.data, spec.layout, { displayModeBar: false, responsive: true, doubleClick: false });
  };

  const again = () => drawn.forEach((chart) => draw(chart));

  // One chart per turn of the event loop: a key or a click never waits for more than one.
  const waiting = [];
  const next = () => {
    if (waiting.length) draw(waiting.shift());
    if (waiting.length) setTimeout(next);
  };
  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      seen.unobserve(entry.target);
      if (waiting.push(entry.target) === 1) setTimeout(next);
    }),
    { rootMargin: "100px" },
  );
  charts.forEach((chart) => seen.observe(chart));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

  // Paper is narrower than most windows, and white.
  const PAPER = 620;
  matchMedia("print").addEventListener("change", (event) => {
    if (event.matches) charts.forEach((chart) => draw(chart, chart.classList.contains("trend") ? PAPER : PAPER / 2));
    else again();
  });

  // A link to a unit opens it.
  const show = () => {
    const unit = document.getElementById(location.hash.slice(1));
    if (!unit || !unit.matches("details.unit")) return;
    unit.hidden = false;
    unit.open = true;
    unit.scrollIntoView();
  };
  addEventListener("hashchange", show);
  document.querySelectorAll('a[href^="#unit-"], a[href^="#talk-"]').forEach((link) => link.addEventListener("click", () => setTimeout(show)));
  show();

  const filter = document.getElementById("filter");
  if (filter) {
    filter.hidden = false;
    filter.addEventListener("change", (event) => {
      const wanted = event.target.value;
      document.querySelectorAll("#worst .unit").forEach((unit) => {
        unit.hidden = wanted !== "" && !unit.dataset.low.split(" ").includes(wanted);
      });
    });
  }
  document.documentElement.dataset.ready = "yes";
})();
