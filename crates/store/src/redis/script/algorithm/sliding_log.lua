-- limit: units in any span. span: how long a unit counts.
--
-- Stored: a string of slots. The first has the units of all entries, the number of the next one,
-- and how many entries at the front were forgotten. Each of the others is an entry, oldest first,
-- with its instant, cost and number. A short log is read and written whole, which takes the fewest
-- commands. Of a long log, only the pages that are needed are read, and two slots are written;
-- forgotten entries are cut off when they are more than the rest.
local SLOT, PAGE = 20, 1000

local function text(number)
  return string.format('%.0f', number)
end

local function entry(c, i)
  if i == c.count then
    return c.newest, c.newest_cost, c.newest_number
  end
  local page = floor(SLOT * i / PAGE)
  if not c.pages[page] then
    c.pages[page] = call('GETRANGE', c.key, text(page * PAGE), text(page * PAGE + PAGE - 1))
  end
  return unpack('<dI4d', c.pages[page], SLOT * i - page * PAGE + 1)
end

-- The instant of the entry with which the first so many units leave; -1 if there are fewer.
local function leaving(c, units)
  local sum = 0
  for i = c.first, c.count do
    local at, cost = entry(c, i)
    sum = sum + cost
    if sum >= units then
      return min(at, c.time)
    end
  end
  return -1
end

-- The slots of all entries that were not forgotten. Entries ahead of the log's time are moved to
-- it, and the edited entry, if any, has its new cost.
local function rewritten(c)
  local slots, newest, newest_cost, newest_number = {}, nil, nil, nil
  for i = c.forgotten + 1, c.count do
    local at, cost, number = entry(c, i)
    if i == c.edited then
      cost = c.edited_cost
    end
    if cost > 0 then
      newest, newest_cost, newest_number = min(at, c.time), cost, number
      slots[#slots + 1] = pack('<dI4d', newest, newest_cost, newest_number)
    end
  end
  c.newest, c.newest_cost, c.newest_number = newest, newest_cost, newest_number
  return table.concat(slots)
end

-- The same if only the newest entry has changed.
local function with_newest(c)
  local first, last = SLOT * (c.forgotten + 1), SLOT * c.count - 1
  local others
  if last < PAGE then
    others = string.sub(c.pages[0], first + 1, last + 1)
  else
    others = call('GETRANGE', c.key, text(first), text(last))
  end
  return others .. pack('<dI4d', c.newest, c.newest_cost, c.newest_number)
end

algorithms[KIND] = {
  load = function(c)
    local page = call('GETRANGE', c.key, '0', text(PAGE - 1))
    local length = #page
    if length == PAGE then
      length = call('STRLEN', c.key)
    end
    c.pages, c.count, c.units, c.next, c.forgotten = { [0] = page }, 0, 0, 0, 0
    if length > SLOT and length % SLOT == 0 then
      local count = length / SLOT - 1
      c.newest, c.newest_cost, c.newest_number = entry(c, count)
      c.count = count
    end
    if length >= SLOT and length % SLOT == 0 then
      c.units, c.next, c.forgotten = unpack('<ddI4', page)
    end
    c.first = c.forgotten + 1
  end,

  open = function(c)
    c.time, c.used = now, c.units
    if c.first <= c.count and c.newest <= now + tolerated_skew(c.span) then
      c.time = max(c.newest, now)
    end
    c.is_ahead = c.first <= c.count and c.newest > c.time
    while c.first <= c.count do
      local at, cost = entry(c, c.first)
      if c.time - at < c.span then
        break
      end
      c.used = c.used - cost
      c.first = c.first + 1
    end
    c.fits = c.used + c.cost <= c.limit
  end,

  take = function(c)
    local taken = c.cost
    c.forgotten = c.first - 1
    if c.first <= c.count and c.count - c.forgotten >= c.limit then
      taken = min(taken, MOST - c.newest_cost)
      c.newest_cost = c.newest_cost + taken
    else
      -- The previous newest entry is read like the others from now on.
      if c.count > 0 then
        local was_newest = c.count
        c.count = c.count + 1
        entry(c, was_newest)
      else
        c.count = 1
      end
      c.newest_cost, c.newest_number, c.next = taken, c.next, c.next + 1
    end
    c.newest, c.number = c.time, c.newest_number
    c.units = c.used + taken
    c.used = c.units
  end,

  on_denied = function(c)
    return c.is_ahead
  end,

  save = function(c)
    local is_long = SLOT * c.count >= PAGE
    if is_long and not c.is_ahead and not c.edited and 2 * c.forgotten <= c.count then
      local newest = pack('<dI4d', c.newest, c.newest_cost, c.newest_number)
      call('SETRANGE', c.key, '0', pack('<ddI4', c.units, c.next, c.forgotten))
      call('SETRANGE', c.key, text(SLOT * c.count), newest)
      call('PEXPIRE', c.key, ttl(c.newest + c.span))
      return
    end
    local entries = (c.is_ahead or c.edited) and rewritten(c) or with_newest(c)
    local value = pack('<ddI4', c.units, c.next, 0) .. entries
    set(c, value, c.newest and c.newest + c.span or 0)
    c.pages = { [0] = #value <= PAGE and value or nil }
    c.first, c.forgotten = c.first - c.forgotten, 0
    c.count = #entries / SLOT
  end,

  -- The units that count; the instants of the newest entry, of the entry that must leave before one
  -- unit fits, and of the one that must leave before the cost fits; and the receipt.
  reply = function(c)
    local newest, one, all = -1, -1, -1
    if c.used > 0 and c.first <= c.count then
      newest = min(c.newest, c.time)
    end
    if c.used >= c.limit then
      one = leaving(c, c.used + 1 - c.limit)
    end
    if not c.fits and c.cost <= c.limit then
      all = leaving(c, c.used + c.cost - c.limit)
    end
    return pack('<dddddd', c.used, newest, one, all, c.time, c.number or 0)
  end,
}

if opcode == GIVE_BACK then
  algorithms[KIND].give_back = function(c, at, number)
    local low, high = c.first, c.count
    while low < high do
      local middle = floor((low + high) / 2)
      local of_middle, _, number_of_middle = entry(c, middle)
      if of_middle < at or (of_middle == at and number_of_middle < number) then
        low = middle + 1
      else
        high = middle
      end
    end
    if low > c.count then
      return false
    end
    local of_low, cost, number_of_low = entry(c, low)
    if number_of_low ~= number or of_low ~= at then
      return false
    end
    local back = min(c.cost, cost)
    c.edited, c.edited_cost, c.units = low, cost - back, c.units - back
    c.time = NEVER
    return true
  end
end

if opcode == READ_STATE then
  -- The number of the next entry, and the slots of the entries that count.
  algorithms[KIND].reply = function(c)
    if c.first > c.count then
      return pack('<d', c.next)
    end
    local slots = call('GETRANGE', c.key, text(SLOT * c.first), text(SLOT * c.count + SLOT - 1))
    return pack('<d', c.next) .. slots
  end
end

-- Below, the numbers that encode another log are the number of its next entry, and then an instant,
-- a cost and a number for each entry, oldest first. The log is written whole.

-- Replaces a log by these slots, each with an instant, a cost and a number.
local function write(c, slots)
  local units, packed = 0, {}
  for i, slot in ipairs(slots) do
    units = units + slot[2]
    packed[i] = pack('<dI4d', slot[1], slot[2], slot[3])
  end
  local header = pack('<ddI4', units, c.next, 0)
  set(c, header .. table.concat(packed), slots[#slots][1] + c.span)
end

if opcode == SEED then
  algorithms[KIND].join = function(c, numbers)
    local n = #numbers - 2
    algorithms[KIND].open(c)
    if n > 1 and numbers[n] <= now + tolerated_skew(c.span) then
      c.time = max(c.time, numbers[n])
    end
    local joined, is_new = {}, false
    local i, ours, theirs, units = c.count, 0, 0, 0
    -- Both logs from their newest to their oldest entry. -1 is before all entries.
    local function ours_at(i)
      if i < c.first then
        return -1, 0, -1
      end
      local at, cost, number = entry(c, i)
      if c.time - at >= c.span then
        return -1, 0, -1
      end
      return min(at, c.time), cost, number
    end
    local function theirs_at(n)
      if n < 2 or c.time - numbers[n] >= c.span then
        return -1, 0, -1
      end
      return min(numbers[n], c.time), numbers[n + 1], numbers[n + 2]
    end
    while true do
      local our_at, our_cost, our_number = ours_at(i)
      local at, cost, number = theirs_at(n)
      if our_at > at or (our_at == at and our_number > number) then
        at, number, i, ours = our_at, our_number, i - 1, ours + our_cost
      elseif our_at == at and our_number == number then
        i, n, ours, theirs = i - 1, n - 3, ours + our_cost, theirs + cost
      else
        n, theirs = n - 3, theirs + cost
      end
      if at < 0 then
        break
      end
      local missing, oldest = min(max(ours, theirs) - units, MOST), joined[#joined]
      is_new = is_new or (missing > 0 and theirs > ours)
      units = units + missing
      -- With as many entries as the limit, nothing fits: older entries are merged into the oldest
      -- of them, so memory is bounded.
      if missing > 0 and oldest and #joined >= c.limit then
        oldest[2] = min(oldest[2] + missing, MOST)
      elseif missing > 0 then
        joined[#joined + 1] = { at, missing, number }
      end
    end
    if is_new then
      local slots, count = {}, #joined
      for k, slot in ipairs(joined) do
        slots[count + 1 - k] = slot
      end
      c.next = max(c.next, numbers[1])
      write(c, slots)
    end
    return false, units > ours
  end
end

if opcode == ADD then
  -- Each entry is added to the first one that is not older, so that entries keep their order and
  -- their numbers.
  algorithms[KIND].add = function(c, numbers)
    algorithms[KIND].open(c)
    local log = {}
    for i = c.first, c.count do
      local at, cost, number = entry(c, i)
      log[#log + 1] = { min(at, c.time), cost, number }
    end
    local i, newest = 1, log[#log]
    for n = 2, #numbers, 3 do
      local at, cost = numbers[n], numbers[n + 1]
      while log[i] and log[i][1] < at do
        i = i + 1
      end
      if c.time - at >= c.span then
        cost = 0
      elseif log[i] then
        log[i][2] = log[i][2] + min(cost, MOST - log[i][2])
      elseif newest and #log >= c.limit then
        newest[1], newest[2] = min(at, c.time), newest[2] + min(cost, MOST - newest[2])
      else
        newest = { min(at, c.time), cost, c.next }
        log[#log + 1], c.next = newest, c.next + 1
      end
    end
    if newest then
      write(c, log)
    end
    return false
  end
end
