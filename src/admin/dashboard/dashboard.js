// The dashboard: what the proxy tells each second, in five views. Callers choose their names, so
// text becomes text nodes only.
const SVG = 'http://www.w3.org/2000/svg';
const PERIODS = [[60, '5 min'], [180, '15 min'], [720, '1 hour']];
const SILENCE_MS = 4000;
const MAX_ROWS = 300, SHOWN_ROWS = 100;
const $ = id => document.getElementById(id);
const on = (id, event, work) => $(id).addEventListener(event, work);

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat('en', { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const hours = new Intl.DateTimeFormat('en', { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat('en', { year: 'numeric', month: 'short', day: 'numeric' });

const count = number => whole.format(number);
const rate = number => (number === 0 ? '0' : number < 100 ? tenth.format(number) : whole.format(number));
const share = (part, all) => (all > 0 ? `${rate((100 * part) / all)}` : '0');
const time = text => clock.format(new Date(text));
const moment = text => `${day.format(new Date(text))}, ${time(text)}`;

function took(seconds) {
	if (seconds == null) return '–';
	if (seconds >= 0.1) return '> 100 ms';
	return seconds < 0.001 ? `${whole.format(seconds * 1e6)} µs` : `${tenth.format(seconds * 1e3)} ms`;
}

const lasts = seconds => (seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

function fill(node, attributes, children) {
	for (const [name, value] of Object.entries(attributes ?? {})) {
		if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
		else if (value != null && value !== false) node.setAttribute(name, value);
	}
	node.append(...children.filter(child => child != null));
	return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const say = (node, text) => node.textContent !== text && (node.textContent = text);
const mark = (node, name) => node.getAttribute('class') !== name && node.setAttribute('class', name);
// A cell, as data: a text, or [element.class, text, attributes].
const tag = (text, kind = '') => [`span.tag ${kind}`, text];
const soft = text => ['small', ` ${text}`];
const mono = text => ['span.mono', text];
const callerLink = name => ['a.mono', name, { href: `#callers/${encodeURIComponent(name)}` }];
function build(part) {
	if (typeof part === 'string') return part;
	const [name, text, attributes] = part;
	const [element, kind] = name.split('.');
	return h(element, { class: kind, ...attributes }, text);
}

// Builds what is in a place once for each value.
function once(place, value, make) {
	const text = JSON.stringify(value);
	if (place.built === text) return;
	place.built = text;
	place.replaceChildren(...make());
}

// A column: its text or parts for a row, or `draw` for what is no text. `bare` has no label where
// rows are blocks, and `wide` has a line of its own there.
const WIDE = { wide: true }, BARE = { bare: true }, WIDE_BARE = { ...WIDE, ...BARE };
const column = (name, of, more) => ({ name, of, ...more });
const number = (name, of, more) => ({ name, of, num: true, ...more });

// A table whose rows have keys: those that stay keep focus and selection.
class Table {
	constructor(place, caption, columns, empty) {
		this.columns = columns;
		this.rows = new Map();
		this.body = h('tbody', { role: 'rowgroup' });
		const head = columns.map(own => h('th', { scope: 'col', role: 'columnheader', class: own.num && 'num', title: own.title }, own.hidden ? h('span', { class: 'unseen' }, own.name) : own.name));
		this.table = h('table', { class: 'stack', role: 'table' }, h('caption', {}, caption),
			h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...head)), this.body);
		this.empty = h('p', { class: 'empty' }, empty ?? 'None.');
		place.replaceChildren(this.table, this.empty);
		this.update([]);
	}

	update(rows, keyOf = row => row.key) {
		this.table.hidden = rows.length === 0;
		this.empty.hidden = rows.length > 0;
		const old = this.rows;
		this.rows = new Map();
		let next = this.body.firstElementChild;
		for (const row of rows) {
			const key = keyOf(row);
			const line = old.get(key) ?? this.make();
			old.delete(key);
			this.rows.set(key, line);
			this.columns.forEach(({ of, draw, num, wide }, at) => {
				const cell = line.cells[at];
				if (draw) return draw(cell, row);
				const found = of(row);
				const parts = typeof found === 'string' ? [found] : found;
				once(cell, parts, () => parts.map(build));
				// Figures that are 0 step back, so that others stand out.
				mark(cell, `${num ? 'num' : ''} ${wide ? 'wide' : ''} ${parts[0] === '0' && parts.length === 1 ? 'zero' : ''}`);
			});
			mark(line, row.kind ?? '');
			// Moving an element takes the focus from it.
			if (line === next) next = next.nextElementSibling;
			else this.body.insertBefore(line, next);
		}
		for (const line of old.values()) line.remove();
	}

	make() {
		const cells = this.columns.map(({ name, wide, bare }, at) => at === 0
			? h('th', { scope: 'row', role: 'rowheader', class: wide && 'wide' })
			: h('td', { role: 'cell', 'data-label': bare ? null : name, class: wide && 'wide' }));
		return h('tr', { role: 'row' }, ...cells);
	}
}

// The path of an area between two rows of values; x and y give places.
function area(low, high, x, y) {
	const top = high.map((value, at) => `${x(at)},${y(value)}`);
	const under = low.map((value, at) => `${x(at)},${y(value)}`).reverse();
	return `M${top.join('L')}L${under.join('L')}Z`;
}

function sparkline(svg, steps) {
	const stack = steps.map(({ allowed, would_be_denied: would, denied }) => [0, allowed, allowed + would, allowed + would + denied]);
	const most = Math.max(1, ...stack.map(own => own[3]));
	const x = at => (at * 132 / (stack.length - 1)).toFixed(1);
	const y = value => (25 - value * 24 / most).toFixed(1);
	const part = at => area(stack.map(own => own[at]), stack.map(own => own[at + 1]), x, y);
	svg.replaceChildren(...['allow', 'would', 'deny'].map((kind, at) => s('path', { class: `area ${kind}`, d: part(at) })), s('path', { class: 'grid', d: 'M0,25.5H132' }));
}

// A round number that is not below.
function round(most) {
	const power = 10 ** Math.floor(Math.log10(most));
	return [1, 2, 3, 4, 6, 8, 10].map(part => part * power).find(limit => limit >= most - 1e-12);
}

// A chart with its figures: series are { name, kind, dash, of(step) }; stacked ones are areas.
class Chart {
	constructor(place, { title, unit, height, series, stacked, format }) {
		Object.assign(this, { title, unit, height, series, stacked, format });
		this.svg = s('svg', { class: 'chart', role: 'img', height });
		this.keys = series.map(own => h('span', {}, ''));
		const legend = series.map((own, at) => h('span', { class: `key ${own.kind} ${stacked ? '' : own.dash ? 'line dash' : 'line'}` }, h('i', {}), own.name, ' ', this.keys[at]));
		this.when = h('span', {});
		this.toggle = h('button', { type: 'button', 'aria-pressed': 'false', 'aria-label': `${title}: show as table`, onclick: () => this.flip() }, 'Show as table');
		this.rows = h('div', { hidden: true });
		this.table = new Table(this.rows, title, [column('Time', row => row.time),
			...series.map((own, at) => number(own.name, row => row.values[at]))], 'No step has ended yet.');
		place.append(h('figure', {}, h('figcaption', {}, h('b', {}, title), ...legend, this.when, this.toggle), this.svg, this.rows));
		this.svg.addEventListener('pointermove', event => this.point(event.clientX));
		this.svg.addEventListener('pointerleave', () => this.point(null));
		new ResizeObserver(() => this.draw()).observe(this.svg);
	}

	flip() {
		const shown = this.toggle.getAttribute('aria-pressed') !== 'true';
		this.toggle.setAttribute('aria-pressed', String(shown));
		say(this.toggle, shown ? 'Show as chart' : 'Show as table');
		this.rows.hidden = !shown;
		this.svg.toggleAttribute('hidden', shown);
		this.draw();
	}

	point(clientX) {
		this.at = clientX;
		this.draw();
	}

	update(steps, end) {
		Object.assign(this, { steps, end });
		this.draw();
	}

	draw() {
		const { steps, series, height, svg } = this;
		if (!steps) return;
		// A process younger than the period gets a shorter axis.
		const slots = shownSlots(steps);
		if (!this.rows.hidden) {
			// A minute a row: figures to read, not to scroll by.
			const rows = [];
			for (let at = steps.length; at > 0 && rows.length < 60; at -= 12) {
				const part = steps.slice(Math.max(0, at - 12), at);
				const from = this.end - (steps.length - Math.max(0, at - 12)) * 5000;
				rows.push({ key: at - steps.length, time: clock.format(from), values: series.map(own => this.format(own.over(part))) });
			}
			this.table.update(rows);
			return;
		}
		const width = svg.clientWidth, left = 52, bottom = 18;
		if (!width) return;
		const lines = series.map(own => steps.map(own.of));
		const stack = this.stacked ? lines.map((_, row) => steps.map((_, at) => lines.slice(0, row + 1).reduce((sum, line) => sum + line[at], 0))) : lines;
		const most = round(Math.max(this.stacked ? 1 : 1e-4, ...stack.flat().filter(Number.isFinite)) * 1.02);
		const x = at => (left + (slots - steps.length + at + .5) * (width - left) / slots).toFixed(1);
		const y = value => (height - bottom - value * (height - bottom - 8) / most).toFixed(1);
		const marks = [0, .5, 1].flatMap(part => [
			s('path', { class: 'grid', d: `M${left},${y(part * most)}H${width}` }),
			s('text', { x: left - 8, y: +y(part * most) + 4, 'text-anchor': 'end' }, this.format(part * most).replace('.0', '')),
		]);
		// At full minutes, so many that there is room for them.
		const minutes = [1, 2, 5, 10, 20].find(own => slots / 12 / own <= (width < 500 ? 4 : 7));
		const last = Math.floor(this.end / 60000 / minutes) * minutes * 60000;
		for (let when = last; when > this.end - slots * 5000; when -= minutes * 60000) {
			const place = width - (this.end - when) / 5000 * (width - left) / slots;
			if (place > left + 16) marks.push(s('text', { x: place, y: height - 3, 'text-anchor': place > width - 20 ? 'end' : 'middle' }, hours.format(when)));
		}
		const shapes = stack.map((line, row) => {
			const { kind, dash } = series[row];
			if (this.stacked) return s('path', { class: `area ${kind}`, d: line.length > 1 ? area(row ? stack[row - 1] : line.map(() => 0), line, x, y) : '' });
			// A step without requests has no figure: the line breaks.
			let pen = 'M';
			const places = line.map((value, at) => {
				if (!Number.isFinite(value)) { pen = 'M'; return ''; }
				const place = `${pen}${x(at)},${y(value)}`;
				pen = 'L';
				return place;
			});
			return s('path', { class: `stroke ${kind} ${dash ? 'dash' : ''}`, d: places.join('') });
		});
		let at = steps.length - 1;
		if (this.at != null) {
			const slot = Math.floor((this.at - svg.getBoundingClientRect().left - left) * slots / (width - left));
			at = Math.min(Math.max(0, slot - slots + steps.length), steps.length - 1);
			if (at >= 0) shapes.push(s('path', { class: 'cross', d: `M${x(at)},8V${height - bottom}` }));
			say(this.when, at >= 0 ? `at ${clock.format(this.end - (steps.length - 1 - at) * 5000)}` : '');
		} else say(this.when, '');
		lines.forEach((line, row) => say(this.keys[row], at >= 0 ? this.format(line[at]) : ''));
		svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
		svg.setAttribute('aria-label', `${this.title}: ` + series.map((own, row) => `${own.name} ${at >= 0 ? this.format(lines[row][at]) : 'none'}`).join(', '));
		svg.replaceChildren(...marks, ...shapes);
	}
}

// A tab's own storage, which goes with it.
const readToken = () => sessionStorage.getItem('tollgate-token');
let actToken = null;

class Refused extends Error {
	constructor(status, text) {
		super(text);
		this.status = status;
	}
}

async function ask(path, { method = 'GET', body, token = readToken(), signal } = {}) {
	const headers = {};
	if (token) headers.authorization = `Bearer ${token}`;
	if (method === 'POST') Object.assign(headers, { 'x-tollgate-action': '1', 'content-type': 'application/json' });
	const answer = await fetch(path, { method, headers, body, signal, cache: 'no-store', credentials: 'omit' });
	if (answer.ok) return answer;
	const text = await answer.json().then(value => value.message, () => null);
	if (answer.status === 401 && method === 'GET') askForToken(token ? text : '');
	throw new Refused(answer.status, text ?? `the answer is ${answer.status}`);
}
const get = (path, signal) => ask(path, { signal }).then(answer => answer.json());

function askForToken(problem) {
	sessionStorage.removeItem('tollgate-token');
	say($('login-error'), problem ?? '');
	if (!$('login').hidden) return;
	$('login').hidden = false;
	for (const view of document.querySelectorAll('.view')) view.hidden = true;
	$('token').focus();
}

on('login', 'submit', event => {
	event.preventDefault();
	sessionStorage.setItem('tollgate-token', $('token').value.trim());
	$('token').value = '';
	say($('login-error'), '');
	wake();
});

let history = null, live = null, steps = [], tiers = new Map();
let slots = PERIODS[0][0];
const keyOf = row => JSON.stringify([row.policy, row.limit, row.tier]);
const lastSteps = all => all.slice(-slots);
const shownSlots = all => Math.min(slots, Math.max(24, all.length));

async function learn() {
	history = await get('history');
	steps = history.steps;
	tiers = new Map();
	for (const limit of history.limits) {
		for (const tier of limit.tiers) tiers.set(keyOf({ ...limit, ...tier }), { info: limit, rates: tier.rates, steps: tier.steps, tried: tier.candidate });
	}
}

async function take(report) {
	const knows = history && history.started === report.started && history.generation === report.generation;
	if (!knows || report.step < history.step || report.step > history.step + 1) await learn();
	else if (report.step === history.step + 1) {
		history.step = report.step;
		steps = [...steps, report.latest_step].slice(-720);
		for (const own of report.tiers) {
			const known = tiers.get(keyOf(own));
			if (!known) continue;
			known.steps = [...known.steps, own.latest_step].slice(-720);
			if (known.tried) known.tried.steps = [...known.tried.steps, own.candidate.latest_step].slice(-720);
		}
	}
	const restarted = live && live.started !== report.started;
	live = report;
	if (restarted) forget();
	if (!$('login').hidden) {
		$('login').hidden = true;
		route();
	}
	show();
}

let lostSince = null, controller = null, wakeUp = null;

function connected() {
	lostSince = null;
	$('lost').hidden = true;
	mark($('state'), 'state live');
	say($('state-text'), live.phase === 'serving' ? 'Live' : live.phase === 'draining' ? 'Draining' : 'Starting');
}

function lost(reason) {
	lostSince ??= new Date();
	mark($('state'), 'state gone');
	say($('state-text'), 'Not connected');
	if (!$('login').hidden) return;
	$('lost').hidden = false;
	say($('lost'), `${reason} since ${clock.format(lostSince)}. ${live ? 'The figures are of that time. ' : ''}It is tried again and again.`);
}

function wake() {
	controller?.abort();
	wakeUp?.();
}

// Events by fetch, not by EventSource, which cannot send a token.
async function listen() {
	for (;;) {
		controller = new AbortController();
		let reason = 'The proxy does not answer';
		let watch = setTimeout(() => controller.abort(), SILENCE_MS);
		try {
			const answer = await ask('events', { signal: controller.signal });
			const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
			let text = '';
			for (;;) {
				const { value, done } = await reader.read();
				if (done) break;
				clearTimeout(watch);
				watch = setTimeout(() => controller.abort(), SILENCE_MS);
				text += value;
				const parts = text.split('\n\n');
				text = parts.pop();
				// Of several at once, the last has the steps.
				const line = parts.at(-1)?.split('\n').find(own => own.startsWith('data'));
				if (line) {
					await take(JSON.parse(line.slice(line.indexOf(' '))));
					connected();
				}
			}
		} catch (error) {
			if (error instanceof Refused) reason = error.status === 401 ? 'A token is needed' : `No events (${error.message})`;
		}
		clearTimeout(watch);
		lost(reason);
		const pause = !$('login').hidden && !readToken() ? 3.6e6 : 1500;
		await new Promise(done => { wakeUp = done; setTimeout(done, pause); });
	}
}

// View: now.

const figures = {};
for (const [id, name] of [['rate', 'Requests'], ['denied', 'Denied'], ['would', 'Would be denied'], ['errors', 'Server errors'], ['added', 'Added by the proxy'], ['flight', 'In flight']]) {
	const main = h('dd', { id: `figure-${id}` }), under = h('dd', { class: 'under', id: `under-${id}` });
	figures[id] = (value, unit, below, kind) => {
		once(main, [value], () => [value, h('small', {}, unit)]);
		mark(main, kind ?? '');
		say(under, below);
	};
	$('figures').append(h('div', {}, h('dt', {}, name), main, under));
}

const sum = of => part => part.reduce((all, step) => all + of(step), 0);
const perSecond = of => ({ of: step => of(step) / 5, over: part => sum(of)(part) / (5 * Math.max(1, part.length)) });
const worst = of => ({ of: step => of(step) ?? NaN, over: part => Math.max(...part.map(step => of(step) ?? -1)) });
const charts = {
	requests: new Chart($('charts'), {
		title: 'Requests a second', height: 190, stacked: true, format: rate,
		series: [
			{ name: 'passed', kind: 'allow', ...perSecond(step => Math.max(0, step.ended - step.denied - step.would_be_denied)) },
			{ name: 'would be denied', kind: 'would', ...perSecond(step => step.would_be_denied) },
			{ name: 'denied', kind: 'deny', ...perSecond(step => step.denied) },
		],
	}),
};
{
	const pair = h('div', { class: 'pair' });
	$('charts').append(pair);
	const ms = value => (Number.isFinite(value) && value >= 0 ? took(value) : '–');
	charts.added = new Chart(pair, {
		title: 'Added by the proxy', height: 130, format: ms,
		series: [{ name: 'p50', kind: 'allow', ...worst(step => step.added_p50) }, { name: 'p99', kind: 'plain', dash: true, ...worst(step => step.added_p99) }],
	});
	charts.errors = new Chart(pair, {
		title: 'Server errors a second', height: 130, stacked: true, format: rate,
		series: [{ name: '5xx', kind: 'deny', ...perSecond(step => step.errors) }],
	});
}

const nowLimits = new Table($('now-limits'), 'Limits that deny most', [
	column('Limit', row => [row.limit, soft(row.tier)], WIDE),
	{ name: 'Trend', bare: true, draw: sparkCell },
	number('Denied', row => count(row.sums.denied)),
	number('Would deny', row => count(row.sums.would_be_denied)),
	number('Callers > 80 %', row => count(row.near_callers)),
], 'No limit has denied anything in this period.');
const STATE = column('State', row => [tag(row.state, row.state === 'serving' ? 'ok' : 'deny')], BARE);
const behind = new Table($('now-behind'), 'Store and upstreams', [
	column('What', row => [row.name, soft(row.more)], WIDE),
	STATE,
	number('Requests', row => row.requests),
	number('Failed', row => row.failures),
]);

function sparkCell(td, row) {
	if (!td.firstChild) td.append(s('svg', { class: 'spark', viewBox: '0 0 132 26', preserveAspectRatio: 'none', 'aria-hidden': 'true' }));
	if (td.drawn === row.steps && td.slots === slots) return;
	[td.drawn, td.slots] = [row.steps, slots];
	const own = lastSteps(row.steps);
	const none = { allowed: 0, denied: 0, would_be_denied: 0 };
	sparkline(td.firstChild, [...Array(shownSlots(steps) - own.length).fill(none), ...own]);
}

// Each limit and tier, with what it did in the period.
function sumsOf(all) {
	const sums = { allowed: 0, denied: 0, would_be_denied: 0 };
	for (const step of lastSteps(all)) for (const name in sums) sums[name] += step[name];
	return sums;
}
const rows = () => live.tiers.filter(own => tiers.has(keyOf(own))).map(own => {
	const known = tiers.get(keyOf(own));
	return { ...own, ...known, key: keyOf(own), sums: sumsOf(known.steps) };
});

// What is wrong: how bad it is, what it is, lines about it.
function problems() {
	const { refused, store_problems: store, key_problems: keys, needs_restart: restart, phase } = live;
	const all = [];
	if (refused) {
		const more = refused.more ? [`And ${count(refused.more)} more.`] : [];
		all.push(['bad', `The configuration of ${moment(refused.at)} was refused; the one before is in force`, more, refused.problems.join('\n')]);
	}
	for (const problem of store) all.push(['bad', 'The store does not decide about some callers', [problem]]);
	for (const { policy, name, servers } of live.upstreams) {
		const places = servers.flatMap(server => server.addresses);
		const out = places.filter(own => own.state !== 'serving');
		if (out.length) all.push([out.length === places.length ? 'bad' : '', `Upstream ${name} of ${policy}: ${out.length} of ${places.length} servers left out`, out.map(own => `${own.address} is ${own.state}`)]);
	}
	for (const { url, problem } of keys) all.push(['', `Keys of ${url} were not fetched`, [problem]]);
	if (restart.length) all.push(['', 'A restart is needed', [`For settings: ${restart.join(', ')}`]]);
	if (phase === 'draining') all.push(['', 'The process is about to end', ['It takes no other requests.']]);
	return all;
}

function showProblems(place) {
	const all = problems();
	once(place, all, () => all.map(([kind, title, lines, code]) =>
		h('div', { class: `alert ${kind}` }, h('strong', {}, title), ...lines.map(line => h('p', {}, line)), code && h('pre', {}, code))));
}

function showNow() {
	const { rates, requests } = live;
	const kind = (value, name) => (value > 0 ? name : '');
	figures.rate(rate(rates.ended), '/s', `${count(requests.ended)} since the start`);
	figures.denied(share(rates.denied, rates.ended), '%', `${count(requests.denied)} since the start`, kind(rates.denied, 'bad'));
	figures.would(share(rates.would_be_denied, rates.ended), '%', `${count(requests.would_be_denied)} since the start`, kind(rates.would_be_denied, 'warn'));
	figures.errors(share(rates.errors, rates.ended), '%', `${count(requests.errors)} since the start`, kind(rates.errors, 'bad'));
	figures.added(took(live.added.p50), 'p50', `${took(live.added.p99)} p99`);
	figures.flight(count(live.in_flight), '', `${count(live.connections)} connections`);
	showProblems($('alerts'));
	const end = Date.parse(live.time);
	for (const chart of Object.values(charts)) chart.update(lastSteps(steps), end);
	const denying = rows().filter(row => row.sums.denied + row.sums.would_be_denied > 0);
	denying.sort((one, other) => other.sums.denied - one.sums.denied || other.sums.would_be_denied - one.sums.would_be_denied);
	nowLimits.update(denying.slice(0, 6));
	const healthy = live.store_problems.length === 0;
	behind.update([
		{ key: 'store', name: 'Store', more: live.store, state: healthy ? 'serving' : 'degraded', requests: '', failures: '' },
		...live.upstreams.flatMap(serverRows).map(row => ({ ...row, more: row.upstream })),
	]);
}

function serverRows({ policy, name, servers }) {
	return servers.map(server => {
		const out = server.addresses.filter(own => own.state !== 'serving');
		const state = out.length === 0 ? 'serving' : out.length === server.addresses.length ? out[0].state : `${out.length} of ${server.addresses.length} left out`;
		const flight = server.addresses.reduce((all, own) => all + own.in_flight, 0);
		return { key: JSON.stringify([policy, name, server.server]), name: server.server, upstream: name, policy, state,
			requests: count(server.requests), failures: count(server.failures), flight: count(flight) };
	});
}

// View: limits.

const MODES = { enforced: tag('live'), shadow: tag('shadow', 'would'), candidate: tag('candidate', 'would') };
// Of what is in flight the lease is no rate.
const ratesOf = all => all.map(own => own.replace(/ at once, .*/, ' at once')).join(', ') || 'unlimited';
const limitsTable = new Table($('limits-table'), 'Limits by tier', [
	column('Limit', row => (row.again ? [['span.again', row.limit]] : [row.limit, soft(`per ${row.info.per}`)]), WIDE),
	column('Tier', row => (row.tried_out ? [['span.again', row.tier]] : row.tier)),
	column('Rate', row => ratesOf(row.rates)),
	column('Mode', row => [row.mode === 'percent' ? tag(`${row.info.percent} % live`, 'would') : MODES[row.mode]], BARE),
	{ name: 'Trend', bare: true, wide: true, draw: sparkCell },
	number('Requests/s', row => (row.tried_out ? '' : rate(row.allowed_per_second + row.denied_per_second))),
	number('Units/s', row => (row.tried_out ? '' : rate(row.units_per_second)), { title: 'Charged and not given back' }),
	number('Allowed', row => count(row.sums.allowed)),
	number('Denied', row => (row.sums.denied ? [['b.bad-text', count(row.sums.denied)]] : row.tried_out ? '' : '0')),
	number('Would deny', row => (row.sums.would_be_denied ? [['b.warn-text', count(row.sums.would_be_denied)]] : '0')),
	number('Callers > 80 %', row => (row.tried_out ? '' : count(row.near_callers))),
], 'No policy in force has limits.');
const overridesTable = new Table($('overrides'), 'Overrides', [
	column('For', row => [mono(row.of)], WIDE),
	column('Limit', row => `${row.policy}/${row.limit}`),
	column('Rate', row => ratesOf(row.rates)),
	column('Ends', row => (row.has_ended ? [tag(`ended ${moment(row.until)}`, 'would')] : row.until ? moment(row.until) : 'never')),
	column('Why', row => row.why, WIDE),
]);

function showLimits() {
	let before = '';
	const all = [];
	for (const row of rows()) {
		const place = `${row.policy}/${row.limit}`;
		const { candidate, tried } = row;
		all.push({ ...row, again: before === place, mode: row.info.mode, kind: candidate ? 'paired' : '' });
		before = place;
		if (candidate) all.push({ ...row, ...tried, sums: sumsOf(tried.steps), key: `${row.key};`, again: true, tried_out: true, mode: 'candidate', kind: 'tried' });
	}
	limitsTable.update(all);
	say($('limits-more'), history.left_out ? `${count(history.left_out)} more rows are not shown: /metrics has them.` : '');
	overridesTable.update(history.limits.flatMap(own => own.overrides.map((entry, at) => ({ ...entry, policy: own.policy, limit: own.limit, key: `${own.policy}/${own.limit}/${at}` }))));
}

// View: callers.

const topColumns = (unit, look) => [
	column('Caller', row => [callerLink(row.name)], WIDE),
	column('Limit', row => row.limit),
	column('Tier', row => row.tier ?? ''),
	{ name: unit, num: true, draw: (td, row) => once(td, [row.count, row.error, row.most], () => [h('div', { class: 'bar-cell' }, meter(row.count / row.most, look),
		h('span', {}, count(row.count), row.error ? h('small', {}, ` ± ${count(row.error)}`) : null))]) },
];
const tops = Object.fromEntries([['units', 'use', ''], ['denials', 'denials', 'deny'], ['would_be_denials', 'would-be denials', 'would']]
	.map(([by, name, look]) => [by, new Table($(`top-${by}`), `Callers by ${name}`, topColumns(look ? 'Denials' : 'Units', look), 'None in this time.')]));

function meter(part, look, size = '') {
	return s('svg', { class: `meter ${size}`, viewBox: '0 0 100 6', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
		s('rect', { class: 'rail', width: 100, height: 6 }), s('rect', { class: look, width: (100 * Math.min(1, part)).toFixed(1), height: 6 }));
}

let asking = false;
// Never asks twice at once; what fails is asked at the next event.
async function refresh(work) {
	if (asking) return;
	asking = true;
	try {
		await work();
	} catch (error) {
		if (!(error instanceof Refused) && !(error instanceof TypeError)) throw error;
	} finally {
		asking = false;
	}
}

function showCallers() {
	const names = [...new Set(history.limits.map(own => own.limit))];
	once($('top-limit'), names, () => {
		const chosen = $('top-limit').value;
		return [h('option', { value: '' }, 'All limits'), ...names.map(name => h('option', { value: name, selected: name === chosen ? '' : null }, name))];
	});
	return refresh(async () => {
		const limit = $('top-limit').value;
		for (const by of Object.keys(tops)) {
			const report = await get(`callers?by=${by}&minutes=${$('top-minutes').value}&top=20${limit ? `&limit=${encodeURIComponent(limit)}` : ''}`);
			const most = Math.max(1, ...report.callers.map(own => own.count));
			tops[by].update(report.callers.map(own => ({ ...own, most, key: JSON.stringify([own.policy, own.limit, own.name]) })));
		}
	});
}
for (const id of ['top-limit', 'top-minutes']) on(id, 'change', show);
on('search', 'submit', event => {
	event.preventDefault();
	location.hash = `#callers/${encodeURIComponent($('caller').value.trim())}`;
});

// View: one caller.

const denialColumns = (...more) => [
	column('Time', row => [['time', time(row.last), { datetime: row.last, title: row.last }]], WIDE),
	column('Times', row => count(row.count)),
	column('Outcome', row => [row.decision === 'deny' ? tag(`denied ${row.status}`, 'deny') : tag('would be denied', 'would')], BARE),
	...more,
	column('Rule', row => (row.limit ? [row.limit, soft(row.policy ?? ''), ...row.counters.map(callerLink)] : row.reason)),
	column('Request', row => [mono(`${row.method} ${row.path}`)], WIDE_BARE),
	column('Id', row => [mono(row.request_id)], WIDE),
];
const ownDenials = new Table($('caller-denials'), 'Last denials of this caller', denialColumns(), 'None is kept.');
let shownCaller = null;

function overrideWords({ until, why }) {
	return `override ${until ? `until ${moment(until)}` : 'without end'}: ${why}`;
}

const ownColumns = [
	column('Limit', row => [row.name, soft(row.window.name === row.name ? '' : row.window.name)], WIDE),
	column('Rate', row => [ratesOf([row.window.rate]), soft(row.window.tier ?? ''), soft(row.limit.override ? overrideWords(row.limit.override) : '')]),
	{ name: 'Share', hidden: true, wide: true, bare: true, draw: (td, row) => once(td, row.part, () => [meter(row.part, row.part >= 1 ? 'deny' : row.part > .8 ? 'would' : '', 'big')]) },
	number('Used', row => `${count(row.window.used)} of ${count(row.window.max)}`),
	number('Left', row => count(row.window.remaining)),
	number('Resets', row => (row.window.reset ? [['span', `in ${lasts(Math.max(0, Math.ceil((Date.parse(row.window.reset) - Date.parse(live.time)) / 1000)))}`, { title: row.window.reset }]] : '–')),
	column('Mode', row => (row.window.is_candidate ? 'candidate' : row.limit.mode === 'enforced' ? 'live' : row.limit.mode)),
	column('Store', row => row.window.answered_by.replaceAll('_', ' ')),
	{ name: 'Action', hidden: true, bare: true, draw: (td, row) => once(td, row.window.is_candidate, () => [row.window.is_candidate ? '' : h('button', { type: 'button', 'aria-label': `Reset ${row.name}`, onclick: () => openReset(row.policy, row.name) }, 'Reset…')]) },
];

// In single quotes a shell reads all but the quote as it is.
const quoted = text => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

function explainCommand(name, denial) {
	const [method, path] = denial ? [denial.method, denial.path] : ['GET', '/'];
	const value = name.slice(name.indexOf(':') + 1);
	const isAddress = /^(\d+\.){3}\d+$|^[\da-f]*:[\da-f:]+$/i.test(value);
	const who = isAddress ? ['--address', value] : ['--claims', JSON.stringify({ sub: value })];
	return ['tollgate', 'explain', '--admin', location.host, ...who, method, path].map(quoted).join(' ');
}

async function showCaller() {
	const name = shownCaller;
	await refresh(async () => {
		const encoded = encodeURIComponent(name);
		let report = null, problem = '';
		try {
			report = await get(`callers/${encoded}`);
		} catch (error) {
			if (!(error instanceof Refused) || error.status === 401) throw error;
			problem = error.message;
		}
		const { denials } = await get(`denials?caller=${encoded}&top=20`);
		if (name !== shownCaller) return;
		say($('caller-error'), problem);
		$('reset-all').hidden = !report;
		const policies = report?.policies ?? [];
		once($('caller-policies'), policies.map(own => [own.policy, own.caller, own.tier, own.listed, own.issuer, own.shared]), () => policies.map(own => {
			const facts = [own.tier ? `tier ${own.tier}` : 'tier not known yet', own.issuer && `vouched for by ${own.issuer}`, own.listed && `in the list ${own.listed}`].filter(Boolean);
			const place = h('div', {});
			place.table = new Table(place, `Limits of ${own.policy}`, ownColumns, 'No limit counts by this caller alone.');
			const shared = own.shared.map(limit => `${limit.limit} (per ${limit.per})`);
			return h('section', {}, h('h2', {}, `Policy ${own.policy}: ${facts.join(', ')}`), place,
				shared.length ? h('p', { class: 'hint' }, `Counted by more than the caller, and not shown: ${shared.join(', ')}.`) : null);
		}));
		policies.forEach((own, at) => {
			const place = $('caller-policies').children[at].children[1];
			place.table.update(own.limits.flatMap(limit => limit.windows.map(window => ({
				key: JSON.stringify([limit.limit, window.name, window.tier, window.is_candidate]), policy: own.policy, limit, window,
				name: limit.limit, part: window.max ? window.used / window.max : 0,
			}))));
		});
		ownDenials.update(denials.toReversed(), row => row.group);
		say($('explain'), explainCommand(name, denials.at(-1)));
	});
}

let order = null;
function openReset(policy, limit) {
	order = { caller: shownCaller, limit, policy };
	say($('reset-what'), limit ? `limit ${limit}` : 'all limits');
	say($('reset-who'), shownCaller);
	say($('reset-error'), '');
	$('why').value = '';
	$('reset').showModal();
	$('why').focus();
}
on('reset-all', 'click', () => openReset());
on('reset-cancel', 'click', () => $('reset').close());
on('reset-form', 'submit', async event => {
	event.preventDefault();
	const token = $('act-token').value.trim() || actToken || readToken();
	const { caller, limit, policy } = order;
	$('reset-do').disabled = true;
	try {
		const body = JSON.stringify({ why: $('why').value, limit, policy });
		const answer = await ask(`callers/${encodeURIComponent(caller)}/reset`, { method: 'POST', body, token });
		const { limits } = await answer.json();
		actToken = token;
		$('act').hidden = true;
		$('act-token').value = '';
		$('reset').close();
		say($('caller-done'), `${limits.join(', ')} ${limits.length === 1 ? 'was' : 'were'} reset.`);
		await showCaller();
	} catch (error) {
		// A token that only reads, or none: the other is asked for, and kept by this page.
		const needs = error.status === 401 || error.status === 403;
		if (needs) {
			actToken = null;
			$('act').hidden = false;
			$('act-token').focus();
		}
		say($('reset-error'), error instanceof Refused ? error.message : 'The proxy does not answer.');
	} finally {
		$('reset-do').disabled = false;
	}
});

// View: denials.

const denialsTable = new Table($('denials-table'), 'Latest denials', denialColumns(column('Caller', row => [row.caller ? callerLink(row.caller) : mono(row.address), soft(row.tier ?? '')], WIDE_BARE)), 'No denial fits.');
let denied = [], shownDenials = null, latest = 0, leftOut = 0;

function forget() {
	[denied, latest, leftOut, shownDenials] = [[], 0, 0, null];
}

function showDenials() {
	return refresh(async () => {
		if (live.latest_denial !== latest || !denied.length) {
			const report = await get(`denials?after=${latest}&top=${MAX_ROWS}`);
			[latest, leftOut] = [report.latest, report.left_out];
			const groups = new Set(report.denials.map(row => row.group));
			denied = [...report.denials.toReversed(), ...denied.filter(row => !groups.has(row.group))].slice(0, MAX_ROWS);
		}
		listDenials();
	});
}

function listDenials() {
	const all = shownDenials ?? denied;
	const wanted = $('filter').value.trim().toLowerCase();
	const decision = $('decision').value;
	const fits = row => (!decision || row.decision === decision) && (!wanted
		|| [row.caller, ...row.counters, row.address, row.limit, row.reason, row.tier, row.policy, row.request_id, `${row.method} ${row.path}`].some(text => text?.toLowerCase().includes(wanted)));
	const found = all.filter(fits);
	denialsTable.update(found.slice(0, SHOWN_ROWS), row => row.group);
	const waiting = shownDenials ? denied.filter(row => row.seq > (shownDenials[0]?.seq ?? 0)).length : 0;
	const words = [`${count(found.length)} of the latest ${count(all.length)}`];
	if (shownDenials) words.push(`paused, ${waiting >= MAX_ROWS ? `${MAX_ROWS} or more` : count(waiting)} have come since`);
	if (leftOut) words.push(`${count(leftOut)} were counted only, for there were too many at once`);
	// Read out when it is paused or filtered, and not each second.
	$('denials-state').setAttribute('aria-live', shownDenials || wanted ? 'polite' : 'off');
	say($('denials-state'), `${words.join('; ')}.`);
}
for (const id of ['filter', 'decision']) on(id, 'input', listDenials);
on('pause', 'click', () => {
	shownDenials = shownDenials ? null : denied;
	$('pause').setAttribute('aria-pressed', String(shownDenials !== null));
	listDenials();
});

// View: system.

const policiesTable = new Table($('policies'), 'Policies in force', [
	column('Policy', row => row.name, WIDE),
	column('Hosts', row => row.hosts.join(', ') || 'all others'),
	number('Limits', row => count(row.limits)),
	number('Routes', row => count(row.routes)),
]);
const upstreamsTable = new Table($('upstreams'), 'Servers of upstreams', [
	column('Server', row => [mono(row.name)], WIDE),
	column('Upstream', row => `${row.policy}/${row.upstream}`),
	STATE,
	number('In flight', row => row.flight),
	number('Requests', row => row.requests),
	number('Failed', row => row.failures),
]);
const redisTable = new Table($('redis'), 'Redis servers', [
	column('Server', row => [mono(row.server)], WIDE),
	column('Store', row => row.store),
	column('Role', row => row.role),
	STATE,
	column('Since', row => moment(row.since)),
	column('Last problem', row => row.refusal ?? row.last_error ?? '', WIDE),
]);
const issuersTable = new Table($('issuers'), 'Keys that are fetched from issuers', [
	column('From', row => row.url, WIDE),
	number('Keys', row => count(row.keys)),
	column('Fetched', row => (row.fetched ? moment(row.fetched) : 'never')),
	column('Problem', row => [['span.bad-text', row.last_error ?? '']], WIDE),
], 'No keys are fetched: they are in files, or no policy has tokens.');
const fleetTable = new Table($('fleet'), 'Proxies that share the store', [
	column('Proxy', row => row.name, WIDE),
	STATE,
	column('Version', row => row.version),
	column('Policies', row => row.digest || 'not from files'),
	number('Requests/s', row => rate(row.requests_per_second)),
	number('Denied', row => `${share(row.denied_share, 1)} %`),
	number('Servers', row => `${row.servers_serving} of ${row.servers}`),
	column('Problem', row => row.reload_problem ?? row.store_problem ?? '', WIDE),
]);

function facts(place, all) {
	once(place, all, () => all.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

function showSystem() {
	showProblems($('config-problems'));
	upstreamsTable.update(live.upstreams.flatMap(serverRows));
	return refresh(async () => {
		const [status, fleet] = await Promise.all([get('status'), get('fleet')]);
		const { store } = status;
		facts($('config'), [
			['Version', status.version], ['Started', moment(status.started)], ['Generation', `${status.generation}, in force since ${moment(status.loaded)}`],
			['Digest of the policies', status.digest || 'none'], ['Reloads', `${count(status.reloads.done)} done, ${count(status.reloads.failed)} refused`],
			['Series of metrics', count(status.metric_series)],
		]);
		const move = store.next ? [['Next store', `${store.next}: ${store.mode ?? ''} ${store.percent ?? 0} %, ${store.moved} % moved`], ['Mirrored, disagreed', `${count(store.mirrored)}, ${count(store.disagreed)}`]] : [];
		const unanswered = Object.entries(store.unanswered).filter(([, number]) => number);
		facts($('store'), [
			['Counters are in', store.current], ['State', store.alone.join('; ') || 'decides about all callers'], ['Counters in the process', count(store.counters)],
			['Not decided by Redis', unanswered.map(([why, number]) => `${why} ${count(number)}`).join(', ') || 'none'],
			['Not yet written to Redis', count(store.owed)], ...move,
		]);
		policiesTable.update(status.policies, row => row.name);
		$('redis-section').hidden = store.servers.length === 0;
		redisTable.update(store.servers.map(own => ({ ...own, state: own.health })), row => `${row.store} ${row.server}`);
		issuersTable.update(status.remote_keys, row => row.url);
		fleetTable.update(fleet.proxies.map(own => ({ ...own, state: own.phase })), row => row.name);
	});
}

const VIEWS = { now: showNow, limits: showLimits, callers: showCallers, 'caller-page': showCaller, denials: showDenials, system: showSystem };
let view = 'now';

function show() {
	if (live && history && $('login').hidden) VIEWS[view]();
}

function route(event) {
	if (!$('login').hidden) return;
	const [name, rest] = location.hash.slice(1).split(/\/(.*)/s);
	let caller = null;
	try {
		caller = rest ? decodeURIComponent(rest) : null;
	} catch {
		caller = rest;
	}
	view = name === 'callers' && caller ? 'caller-page' : name in VIEWS && name !== 'caller-page' ? name : 'now';
	if (view === 'caller-page' && caller !== shownCaller) {
		shownCaller = caller;
		for (const id of ['caller-done', 'caller-error', 'explain']) say($(id), '');
		say($('caller-name'), caller);
		$('caller-policies').replaceChildren();
		$('caller-policies').built = null;
		ownDenials.update([]);
	}
	for (const own of document.querySelectorAll('.view')) own.hidden = own.id !== view;
	for (const link of document.querySelectorAll('nav a')) {
		const isIt = link.hash === `#${view === 'caller-page' ? 'callers' : view}`;
		if (isIt) link.setAttribute('aria-current', 'page');
		else link.removeAttribute('aria-current');
	}
	const title = document.querySelector(`#${view} h1`);
	document.title = `${title.textContent} · Tollgate`;
	// A screen reader goes on where the view begins.
	if (event) {
		scrollTo(0, 0);
		title.focus({ preventScroll: true });
	}
	show();
}

function choose(own) {
	slots = own;
	for (const button of document.querySelectorAll('.period button')) button.setAttribute('aria-pressed', String(Number(button.value) === slots));
	show();
}
for (const place of document.querySelectorAll('.period')) {
	place.setAttribute('role', 'group');
	place.setAttribute('aria-label', 'Period');
	place.append(...PERIODS.map(([own, name]) => h('button', { type: 'button', value: own, onclick: () => choose(own) }, name)));
}
choose(slots);
addEventListener('hashchange', route);
// The skip link must not change the view.
document.querySelector('.skip').addEventListener('click', event => {
	event.preventDefault();
	$('main').focus();
});
route();
listen();
