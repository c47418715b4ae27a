// Opens the unit that a link names, and filters the worst units.
(() => {
  "use strict";
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
