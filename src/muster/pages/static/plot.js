'use strict';
// Plots as SVG, drawn here: a line over time, and the small one beside a name.

const LEVELS = '▁▂▃▄▅▆▇█';

// The day before in a few pixels, from the blocks of a trend.
muster.spark = (trend) => {
  const width = 96, height = 20;
  const svg = muster.s('svg', { class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' });
  if (!trend) return svg;
  const step = width / Math.max(trend.length - 1, 1);
  const y = (level) => height - 2 - level * (height - 4) / 7;
  const path = broken([...trend].map((block, place) => [place * step, block === ' ' ? null : y(LEVELS.indexOf(block))]));
  svg.append(muster.s('path', { d: path }));
  return svg;
};

// A path through points, interrupted where y is null.
function broken(points) {
  let path = '', isDown = false;
  for (const [x, y] of points) {
    if (y === null) { isDown = false; continue; }
    path += isDown ? `L${x.toFixed(1)},${y.toFixed(1)}` : `M${x.toFixed(1)},${y.toFixed(1)}h.01`; // a point alone is a dot
    isDown = true;
  }
  return path;
}

function areas(points, floor) {
  let path = '', run = [];
  for (const point of [...points, [0, null]]) {
    if (point[1] !== null) { run.push(point); continue; }
    if (run.length) path += `M${run[0][0].toFixed(1)},${floor}${run.map(([x, y]) => `L${x.toFixed(1)},${y.toFixed(1)}`).join('')}L${run[run.length - 1][0].toFixed(1)},${floor}Z`;
    run = [];
  }
  return path;
}

// Round numbers from 0 to at least the highest; of times round in minutes, hours or days.
function ticksUpTo(highest, isTime) {
  const steps = isTime ? [1e3, 5e3, 15e3, 60e3, 300e3, 900e3, 3600e3, 3 * 3600e3, 6 * 3600e3, 86400e3, 2 * 86400e3, 7 * 86400e3, 30 * 86400e3] : [];
  let step = steps.find((each) => highest / each <= 4);
  if (!step) {
    const rough = Math.max(highest, 1) / 3, power = 10 ** Math.floor(Math.log10(rough));
    step = Math.max([1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough), isTime ? 1e3 : 1);
  }
  const ticks = [];
  for (let tick = 0; tick < highest + step || ticks.length < 2; tick += step) ticks.push(tick);
  return ticks;
}

const TIME_STEPS = [1e3, 5e3, 15e3, 30e3, 60e3, 300e3, 900e3, 1800e3, 3600e3, 3 * 3600e3, 6 * 3600e3, 12 * 3600e3, 86400e3, 2 * 86400e3, 7 * 86400e3];
muster.timeTicks = (from, to, most) => {
  const step = TIME_STEPS.find((each) => (to - from) / each <= most) || 30 * 86400e3;
  const zone = new Date(from).getTimezoneOffset() * 60e3, ticks = [];
  for (let tick = Math.ceil((from - zone) / step) * step + zone; tick <= to; tick += step) ticks.push(tick);
  return { ticks, text: (ms) => (step >= 86400e3 || muster.clock(ms, false) === '00:00' ? muster.day(ms).slice(5) : muster.clock(ms, step < 60e3)) };
};

// One plot. { title, unit, values, start, slot, isTime, isRate, told(place), note }; a click goes to that moment.
// The last slot is not over: it has a lag as of now, but no rate yet.
muster.plot = (given) => {
  const figure = muster.h('figure', { class: 'plot' });
  const now = muster.h('span', { class: 'value' });
  figure.append(muster.h('figcaption', {}, muster.h('span', {}, given.title), now));
  const place = muster.h('div', { class: 'canvas' });
  figure.append(place);
  const known = given.values.filter((value) => value !== null);
  const text = given.isTime ? muster.duration : muster.shortNumber;
  const newest = given.values.length - (given.isRate ? 2 : 1), last = given.values[newest];
  const rest = () => { now.textContent = last === null || last === undefined ? '' : given.told(newest); };
  rest();
  const draw = () => {
    const width = Math.max(place.clientWidth, 200), height = 130, left = 4, right = 4, top = 14, bottom = 18;
    const end = given.start + given.slot * given.values.length;
    const ticks = ticksUpTo(Math.max(0, ...known), given.isTime), highest = ticks[ticks.length - 1];
    const x = (ms) => left + (ms - given.start) / (end - given.start) * (width - left - right);
    const y = (value) => height - bottom - value / highest * (height - top - bottom);
    const points = given.values.map((value, number) => [x(given.start + given.slot * (number + 1)), value === null ? null : y(value)]);
    const svg = muster.s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${given.title}: ${known.length} values, at most ${known.length ? text(Math.max(...known)) : 'none'}` });
    const days = muster.timeTicks(given.start, end, Math.max(Math.floor(width / 70), 2));
    for (const tick of ticks) {
      svg.append(muster.s('line', { class: 'grid', x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
      if (tick) svg.append(muster.s('text', { class: 'tick', x: left, y: y(tick) - 2 }, text(tick)));
    }
    for (const tick of days.ticks) {
      svg.append(muster.s('line', { class: 'grid', x1: x(tick), x2: x(tick), y1: height - bottom, y2: height - bottom + 4 }));
      svg.append(muster.s('text', { class: 'tick', x: x(tick), y: height - 4, 'text-anchor': x(tick) > width - 30 ? 'end' : x(tick) < 20 ? 'start' : 'middle' }, days.text(tick)));
    }
    svg.append(muster.s('path', { class: 'area', d: areas(points, height - bottom) }), muster.s('path', { class: 'line', d: broken(points) }));
    if (!known.length) svg.append(muster.s('text', { class: 'nothing', x: width / 2, y: height / 2, 'text-anchor': 'middle' }, given.note || 'nothing is known of this time'));
    const cursor = muster.s('line', { class: 'cursor', y1: top, y2: height - bottom, x1: -9, x2: -9 });
    svg.append(cursor);
    const numberAt = (event) => {
      const part = (event.clientX - svg.getBoundingClientRect().left - left) / (width - left - right);
      return Math.min(Math.max(Math.ceil(part * given.values.length) - 1, 0), given.values.length - 1);
    };
    svg.addEventListener('pointermove', (event) => {
      const number = numberAt(event), ms = given.start + given.slot * (number + 1);
      cursor.setAttribute('x1', x(ms)); cursor.setAttribute('x2', x(ms));
      now.textContent = `${muster.time(ms)}: ${given.values[number] === null ? 'not known' : given.told(number)}`;
    });
    svg.addEventListener('pointerleave', () => { cursor.setAttribute('x1', -9); cursor.setAttribute('x2', -9); rest(); });
    svg.addEventListener('click', (event) => muster.setMoment(given.start + given.slot * (numberAt(event) + 1)));
    place.replaceChildren(svg);
  };
  muster.onResize(place, draw);
  return figure;
};

// Draw when an element has a width, and again when that changes.
muster.onResize = (element, draw) => {
  let width = -1;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    draw();
  }).observe(element);
};
