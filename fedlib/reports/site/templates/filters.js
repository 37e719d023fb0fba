"use strict";
// Shows the rows of the scoreboard that have all chosen values; a row's values stand in its data attributes.
const form = document.getElementById("filters");
const rows = [...document.querySelectorAll("#claims tbody tr")];
function apply() {
  const words = form.elements.words.value.toLowerCase().split(/\s+/);
  const chosen = [...form.querySelectorAll("select")].filter((select) => select.value);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(chosen.every((select) => row.dataset[select.name].split("|").includes(select.value)) &&
      words.every((word) => text.includes(word)));
    count += !row.hidden;
  }
  document.getElementById("found").textContent = `${count} of ${rows.length} rows`;
}
form.hidden = false;
form.addEventListener("input", apply);
form.addEventListener("reset", () => setTimeout(apply));
form.addEventListener("submit", (event) => event.preventDefault());
apply();
