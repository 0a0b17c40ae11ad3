"use strict";
// Zoom and search in a flame graph. Frames are <g class="f"> in the order of a walk through the
// tree, each with its position (data-x, data-w, in percent of all) and depth (data-d).
(() => {
  const picture = document.getElementById("flame");
  const frames = Array.from(picture.querySelectorAll("g.f"), (group) => {
    const [title, rect, text] = group.children;
    const [name, ...rest] = title.textContent.split("\n");
    return {
      group, rect, text, name, rest: rest.join(" "),
      x: +group.dataset.x, w: +group.dataset.w, depth: +group.dataset.d,
    };
  });
  const byGroup = new Map(frames.map((frame) => [frame.group, frame]));
  const element = (id) => document.getElementById(id);
  const [searchField, resetButton, matched, details] =
    ["search", "reset", "matched", "details"].map(element);
  const LETTER = 7.3;
  const TINY = 1e-9;
  let zoomed = frames[0];
  let expression = null;

  function place(frame, x, w) {
    const width = picture.getBoundingClientRect().width * w / 100;
    frame.group.style.display = "";
    frame.rect.setAttribute("x", x + "%");
    frame.rect.setAttribute("width", w + "%");
    frame.text.setAttribute("x", x + "%");
    const letters = Math.floor((width - 6) / LETTER);
    const name = Array.from(frame.name);
    frame.text.textContent = letters < 3 ? ""
      : name.length <= letters ? frame.name : name.slice(0, letters - 1).join("") + "\u2026";
  }

  function draw() {
    const { x, w, depth } = zoomed;
    for (const frame of frames) {
      const inside = frame.x >= x - TINY && frame.x + frame.w <= x + w + TINY;
      const above = frame.depth < depth && frame.x <= x + TINY && frame.x + frame.w >= x + w - TINY;
      frame.group.classList.toggle("above", above);
      if (above) {
        place(frame, 0, 100);
      } else if (inside && frame.depth >= depth) {
        place(frame, (frame.x - x) * 100 / w, frame.w * 100 / w);
      } else {
        frame.group.style.display = "none";
      }
    }
    resetButton.classList.toggle("hidden", zoomed === frames[0]);
  }

  function zoom(frame) {
    zoomed = frame;
    draw();
  }

  function search(text) {
    expression = null;
    let wrong = "";
    if (text) {
      try {
        expression = new RegExp(text);
      } catch (error) {
        wrong = error.message;
      }
    }
    // Frames inside a matching frame are part of its share.
    let share = 0;
    let end = -1;
    for (const frame of frames) {
      const matches = expression !== null && frame.depth > 0 && expression.test(frame.name);
      frame.group.classList.toggle("match", matches);
      if (matches && frame.x >= end - TINY) {
        share += frame.w;
        end = frame.x + frame.w;
      }
    }
    matched.textContent = wrong || (expression ? "Matched: " + share.toFixed(2) + "%" : "");
  }

  picture.addEventListener("click", (event) => {
    const group = event.target.closest("g.f");
    if (group) {
      zoom(byGroup.get(group));
    }
  });
  picture.addEventListener("mouseover", (event) => {
    const group = event.target.closest("g.f");
    const frame = group && byGroup.get(group);
    details.textContent = frame ? frame.name + "  " + frame.rest : "";
  });
  resetButton.addEventListener("click", () => zoom(frames[0]));
  searchField.addEventListener("click", () => {
    const text = prompt("A regular expression; leave empty to end the search",
      expression ? expression.source : "");
    if (text !== null) {
      search(text);
    }
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      zoom(frames[0]);
    }
  });
  addEventListener("resize", draw);
  picture.setAttribute("width", "100%");
  draw();
})();
