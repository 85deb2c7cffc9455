'use strict';
// Elements, and numbers and times for people. Whatever clients have written becomes a text node, never markup.
const muster = {};

muster.h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
muster.s = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Rows with the names of their columns said once, as objects.
muster.rows = (list) => list.rows.map((row) => Object.fromEntries(list.columns.map((name, place) => [name, row[place]])));

muster.NONE = '–';
const grouped = new Intl.NumberFormat('en-US');
muster.number = (value) => (value === null || value === undefined ? muster.NONE : grouped.format(value));
muster.shortNumber = (value) => {
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (value >= size) return `${+(value / size).toPrecision(3)} ${unit}`;
  }
  return String(+value.toPrecision(3));
};

// 748561 is "12 min 28 s": two units, as on the command line.
muster.duration = (ms) => {
  if (ms === null || ms === undefined) return muster.NONE;
  if (ms < 0) return `-${muster.duration(-ms)}`;
  if (ms < 60e3) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60e3), hours = Math.floor(ms / 3600e3), days = Math.floor(ms / 86400e3);
  const [whole, unit, rest, lesser] = days ? [days, 'd', hours % 24, 'h'] : hours ? [hours, 'h', minutes % 60, 'min'] : [minutes, 'min', Math.floor(ms / 1000) % 60, 's'];
  return `${grouped.format(whole)} ${unit}${rest ? ` ${rest} ${lesser}` : ''}`;
};

const two = (value) => String(value).padStart(2, '0');
muster.day = (ms) => { const d = new Date(ms); return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`; };
muster.clock = (ms, seconds = true) => {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ''}`;
};
muster.zone = (ms) => new Intl.DateTimeFormat('en-US', { timeZoneName: 'short' }).formatToParts(new Date(ms)).find((part) => part.type === 'timeZoneName').value;
muster.time = (ms) => (ms === null || ms === undefined ? muster.NONE : `${muster.day(ms)} ${muster.clock(ms)}`);
muster.fullTime = (ms) => (ms === null || ms === undefined ? 'not known' : `${muster.time(ms)} ${muster.zone(ms)}`);

// "3 min ago", with the time itself where the pointer rests.
muster.ago = (ms, at) => {
  if (ms === null || ms === undefined) return muster.h('span', { class: 'faint' }, muster.NONE);
  const text = ms > at ? `in ${muster.duration(ms - at)}` : `${muster.duration(at - ms)} ago`;
  return muster.h('time', { datetime: new Date(ms).toISOString(), title: muster.fullTime(ms) }, text);
};

const CLASSES = { OK: 'ok', WARN: 'warn', EXPIRING: 'warn', info: 'info', warning: 'warn' };
muster.pill = (word) => (word
  ? muster.h('span', { class: `pill ${CLASSES[word] || 'err'}` }, word)
  : muster.h('span', { class: 'pill none', title: 'Nothing to judge: no end of the log was observed, or no run has judged it.' }, 'unknown'));

muster.link = (route, attributes, ...children) => muster.h('a', { href: muster.source.href(route), 'data-go': true, ...attributes }, ...children);

// A table from columns: { name, title, cell(row), number, wide, key(row) }.
muster.table = (columns, rows, attributes = {}) => muster.h('table', attributes,
  muster.h('thead', {}, muster.h('tr', {}, columns.map((column) => muster.h('th', { class: classOf(column), scope: 'col' }, column.head ? column.head() : column.title)))),
  muster.h('tbody', {}, rows.map((row) => muster.tableRow(columns, row))));
muster.tableRow = (columns, row) => muster.h('tr', {}, columns.map((column) => muster.h('td', { class: classOf(column) }, column.cell(row))));
function classOf(column) { return [column.number && 'number', column.wide && 'wide', column.name && `c-${column.name}`].filter(Boolean).join(' '); }
