// <doap-matches data-content="JSON">: panels of matches, one per method; see views.py for the data.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SIDE_BY_SIDE = 640; // pixels of a panel above which the two pictures stand beside each other
  const GAP = 0.02; // between the pictures, relative to their extent

  function make(name, attributes = {}, ...children) {
    const node = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  // Place the pictures in one coordinate system: beside each other at one height, or below each other at one width.
  function place(images, wide) {
    const [a, b] = images;
    const scale = wide ? a.height / b.height : a.width / b.width;
    const gap = GAP * (wide ? a.width + scale * b.width : a.height + scale * b.height);
    return wide
      ? { width: a.width + gap + scale * b.width, height: a.height, parts: [[0, 0, 1], [a.width + gap, 0, scale]] }
      : { width: a.width, height: a.height + gap + scale * b.height, parts: [[0, 0, 1], [0, a.height + gap, scale]] };
  }

  const at = ([x0, y0, scale], x, y) => [x0 + scale * (x + 0.5), y0 + scale * (y + 0.5)];

  function drawImages(svg, images, layout) {
    images.forEach((image, index) => {
      const [x, y, scale] = layout.parts[index];
      const [width, height] = [scale * image.width, scale * image.height];
      svg.append(make("svg:image", { href: image.source, x, y, width, height, preserveAspectRatio: "none" }));
    });
  }

  class Panel {
    constructor(content, panel) {
      this.content = content;
      this.panel = panel;
      this.selected = -1;
      this.pinned = false;
      this.drawing = make("div", { class: "doap-drawing" });
      this.detail = make("div", { class: "doap-detail", role: "status" });
      this.node = make(
        "figure",
        { class: "doap-panel", "aria-label": panel.name },
        make("figcaption", {}, make("h2", {}, panel.name), make("p", { class: "doap-facts" }, panel.facts),
          make("p", {}, panel.counts), ...(panel.note ? [make("p", {}, panel.note)] : [])),
        this.drawing,
      );
      if (panel.lines) this.node.append(this.legend(), this.steps(), this.detail);
    }

    draw() {
      const { panel, content } = this;
      if (panel.message) return this.drawing.replaceChildren(make("p", { class: "doap-message" }, panel.message));
      if (panel.warped) return this.drawOverlay();
      const layout = place(content.images, this.drawing.clientWidth >= SIDE_BY_SIDE);
      const unit = layout.width / Math.max(200, this.drawing.clientWidth); // of one pixel on the screen
      const label = `${panel.name}: ${content.images.map((image) => image.name).join(" and ")}. ${panel.counts}`;
      const svg = make("svg:svg", { viewBox: `0 0 ${layout.width} ${layout.height}`, role: "img", "aria-label": label });
      drawImages(svg, content.images, layout);
      this.marks = [];
      (panel.circles || []).forEach((circles, index) => this.drawCircles(svg, circles, layout.parts[index], unit));
      (panel.lines || []).forEach((line, index) => this.drawLine(svg, line, index, layout.parts, unit));
      svg.addEventListener("mouseleave", () => this.pinned || this.select(-1));
      this.drawing.replaceChildren(svg);
      this.select(this.selected);
    }

    drawCircles(svg, circles, part, unit) {
      const path = circles.map(([x, y, radius]) => {
        const [cx, cy] = at(part, x, y);
        const r = Math.max(1.5 * unit, radius * part[2]);
        return `M${cx - r} ${cy}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
      });
      svg.append(make("svg:path", { d: path.join(""), class: "doap-circles", "stroke-width": 1.2 * unit }));
    }

    drawLine(svg, line, index, parts, unit) {
      const [x1, y1] = at(parts[0], line.ends[0], line.ends[1]);
      const [x2, y2] = at(parts[1], line.ends[2], line.ends[3]);
      const style = { x1, y1, x2, y2, stroke: line.colour };
      const seen = make("svg:line", { ...style, class: "doap-line", "stroke-width": 1.4 * unit });
      if (!line.verified) seen.setAttribute("stroke-dasharray", `${4 * unit} ${3 * unit}`);
      const dots = [[x1, y1], [x2, y2]].map(([cx, cy]) => make("svg:circle", { cx, cy, r: 2.6 * unit, fill: line.colour }));
      const target = make("svg:line", { ...style, class: "doap-target", "stroke-width": 9 * unit });
      target.addEventListener("mouseenter", () => this.pinned || this.select(index));
      target.addEventListener("click", () => {
        this.pinned = !(this.pinned && this.selected === index);
        this.select(index);
      });
      const group = make("svg:g", {}, seen, ...dots, target);
      this.marks.push(group);
      svg.append(group);
    }

    drawOverlay() {
      const { panel, content } = this;
      const below = make("img", { src: content.images[1].source, alt: `Second picture: ${content.images[1].name}` });
      const above = make("img", { src: panel.warped, alt: `First picture, warped by the homography of ${panel.name}` });
      const range = make("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": `Opacity of the first picture, ${panel.name}` });
      const show = () => { above.style.opacity = range.value / 100; };
      range.addEventListener("input", show);
      show();
      this.drawing.replaceChildren(
        make("div", { class: "doap-overlay" }, below, above),
        make("label", { class: "doap-range" }, make("span", {}, "second"), range, make("span", {}, "first, warped")),
      );
    }

    legend() {
      const { low, high, unit, shown } = this.panel;
      return make("div", { class: "doap-legend" }, make("span", {}, `distance ${low}`), make("span", { class: "doap-scale" }),
        make("span", {}, `${high}${unit}`), make("span", { class: "doap-shown" }, shown));
    }

    steps() {
      const button = (text, step) => {
        const node = make("button", { type: "button" }, text);
        node.addEventListener("click", () => {
          const count = this.panel.lines.length;
          this.pinned = true;
          if (count) this.select((this.selected + step + count) % count);
        });
        return node;
      };
      return make("div", { class: "doap-steps" }, button("Previous match", -1), button("Next match", 1));
    }

    // Show the patches and the distance of a match; -1 shows none.
    select(index) {
      this.selected = index;
      if (!this.panel.lines) return;
      this.marks.forEach((mark, number) => mark.classList.toggle("doap-selected", number === index));
      this.marks[0]?.parentNode.classList.toggle("doap-has-selection", index >= 0);
      if (index < 0) {
        return this.detail.replaceChildren(make("p", {}, "Point at a match, or click it, to see its two patches."));
      }
      this.marks[index].parentNode.append(this.marks[index]); // on top of the others
      const line = this.panel.lines[index];
      const text = `distance ${line.distance}${this.panel.unit}, second nearest ${line.second}${line.second === "none" ? "" : this.panel.unit}`;
      const state = `Match ${index + 1} of ${this.panel.lines.length}, ${line.verified ? "verified" : "not verified"}`;
      this.detail.replaceChildren(this.patch(index, 0), this.patch(index, 1), make("p", {}, make("strong", {}, state), make("br"), text));
    }

    patch(index, side) {
      const { patch, columns, patches, lines } = this.panel;
      const row = Math.floor(index / columns) + side * Math.ceil(lines.length / columns);
      const node = make("span", { class: "doap-patch", role: "img", "aria-label": `Patch in the ${side ? "second" : "first"} picture` });
      node.style.backgroundImage = `url(${patches})`;
      node.style.backgroundPosition = `${-patch * (index % columns)}px ${-patch * row}px`;
      node.style.width = node.style.height = `${patch}px`;
      return node;
    }
  }

  class Matches extends HTMLElement {
    static observedAttributes = ["data-content"];

    connectedCallback() {
      this.observer = new ResizeObserver(() => this.draw());
      this.observer.observe(this);
    }

    // Gradio changes the attribute of an element that is there, and removes what is in it; hence in the next frame.
    attributeChangedCallback() {
      requestAnimationFrame(() => {
        const content = JSON.parse(this.dataset.content);
        this.panels = content.panels.map((panel) => new Panel(content, panel));
        this.replaceChildren(...this.panels.map((panel) => panel.node));
        this.drawnWidth = 0;
        this.draw();
      });
    }

    disconnectedCallback() {
      this.observer.disconnect();
    }

    draw() {
      if (this.panels && this.clientWidth && this.clientWidth !== this.drawnWidth) {
        this.drawnWidth = this.clientWidth;
        this.panels.forEach((panel) => panel.draw());
      }
    }
  }

  if (!customElements.get("doap-matches")) customElements.define("doap-matches", Matches);
})();
