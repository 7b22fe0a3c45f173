"use strict";
// Fills the slots of the two Bokeh plots with the curves of one group, quantity and x axis.

async function explore() {
  const box = document.querySelector("#curves-packed");
  if (!box) return;
  const { data, plots } = JSON.parse(await unpacked(box.textContent));
  const pick = Object.fromEntries(["group", "quantity", "axis"].map((name) => [name, document.querySelector(`#curves-${name}`)]));
  const models = {};
  Bokeh.set_log_level("error"); // it warns of plots that are empty at first
  for (const [scale, item] of Object.entries(plots)) {
    const views = await Bokeh.embed.embed_item(item, `curves-${scale}`);
    models[scale] = (views.roots ? views.roots[0] : [...views][0]).model;
  }

  function options(select, names, wanted) {
    select.replaceChildren(...names.map((name) => new Option(name, name, false, name === wanted)));
    if (!names.includes(wanted)) select.selectedIndex = 0;
    select.parentElement.hidden = names.length < 2;
  }

  const axisNames = { step: "training step", time: "training time", epoch: "epoch", bytes: "bytes sent" };

  function choose() {
    const group = data.groups.find((each) => each.title === pick.group.value);
    const titles = group.quantities.map((each) => each.title);
    const first = titles.find((title) => title.startsWith("Validation accuracy"));
    options(pick.quantity, titles, pick.quantity.value || kept.get("quantity") || first);
    const quantity = group.quantities.find((each) => each.title === pick.quantity.value);
    const axes = Object.keys(quantity.axes);
    options(pick.axis, axes.map((axis) => axisNames[axis]), pick.axis.value || kept.get("axis"));
    fill(group, quantity, axes.find((axis) => axisNames[axis] === pick.axis.value));
  }

  function fill(group, quantity, axis) {
    const scale = quantity.log ? "log" : "linear";
    for (const other of Object.keys(models)) document.querySelector(`#curves-${other}`).hidden = other !== scale;
    const plot = models[scale];
    const part = (name) => plot.document.get_model_by_name(name);
    plot.below[0].axis_label = quantity.axes[axis];
    plot.left[0].axis_label = quantity.label + (quantity.log ? " (geometric mean over seeds)" : " (mean over seeds)");
    const bySeedGroup = new Map(quantity.curves.map((curve) => [curve.seed_group, curve]));
    const legend = part("legend");
    legend.items.forEach((item, slot) => {
      const seedGroup = group.seed_groups[slot];
      const curve = bySeedGroup.get(slot);
      const drawn = curve !== undefined && curve.x[axis] !== undefined;
      const [line, dot, band] = item.renderers;
      item.visible = drawn;
      const none = { x: [], mean: [], low: [], high: [] };
      const missing = () => curve.mean.map(() => NaN);
      const numbers = (values) => values.map((value) => value ?? NaN);
      line.data_source.data = !drawn ? none : {
        x: numbers(data.xs[curve.x[axis]]),
        mean: numbers(curve.mean),
        low: curve.low ? numbers(curve.low) : missing(),
        high: curve.high ? numbers(curve.high) : missing(),
      };
      if (!drawn) return;
      item.label = { value: curve.label };
      line.visible = dot.visible = band.visible = true;
      dot.name = `${curve.label}, ${curve.n} seed${curve.n === 1 ? "" : "s"}`;
      line.glyph.line_color = band.glyph.fill_color = dot.glyph.line_color = { value: seedGroup.colour };
      line.glyph.line_dash = { value: seedGroup.dash };
      dot.glyph.marker = { value: seedGroup.marker };
      dot.glyph.fill_color = { value: seedGroup.hollow ? "#ffffff" : seedGroup.colour };
      const few = curve.mean.length <= 40; // many points would hide the line; they are still there to hover over
      dot.glyph.fill_alpha = dot.glyph.line_alpha = { value: few ? 1 : 0 };
    });
    const widest = Math.max(...group.seed_groups.map((seedGroup) => seedGroup.label.length)) * 7 + 45;
    legend.ncols = Math.max(1, Math.floor((document.querySelector(`#curves-${scale}`).clientWidth - 80) / widest));
    for (let number = 0; part(`drop${number}`); number += 1) {
      part(`drop${number}`).location = axis === "step" ? group.drops[number] ?? null : null;
    }
  }

  options(pick.group, data.groups.map((group) => group.title), kept.get("group"));
  for (const [name, select] of Object.entries(pick)) {
    select.addEventListener("change", () => { choose(); keep(name, select.value); });
  }
  choose();
  document.body.dataset.curves = "drawn";
}
explore();
