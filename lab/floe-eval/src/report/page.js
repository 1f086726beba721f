"use strict";
// A legend's button shows and hides its line in the charts of its group.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    const lines = `.line[data-line="${button.dataset.line}"]`;
    for (const line of button.closest(".group").querySelectorAll(lines)) {
      line.classList.toggle("off", !shown);
    }
  });
}
