-- limit: the capacity. span: the time from one refill to the next. x: units in a refill. y: 1 if it
-- is strict, and twice the number of steps of an interval if it is even, 0 if it is not.

-- The time of a step, its units, and whether they come one by one.
local function step_of(c)
  local steps = floor(c.y / 2)
  if steps == 0 then
    return c.span, c.x, false
  end
  return c.span / steps, c.x / steps, true
end

local function is_strict(c)
  return c.y % 2 == 1
end

-- number * by / of without its fraction, and what is left of the division. The number is less than
-- `of`, which is below 2^50: so all that is computed on the way is exact.
local function scaled(number, by, of)
  if number * by < 2251799813685248 then
    local whole = floor(number * by / of)
    return whole, number * by - whole * of
  end
  local whole, rest = scaled(number, floor(by / 2), of)
  rest = 2 * rest + by % 2 * number
  return 2 * whole + floor(rest / of), rest % of
end

-- When units will have been refilled after the refill at mark.
local function refilled_at(c, units, mark)
  if units == 0 then
    return mark
  elseif c.x == 0 then
    return NEVER
  end
  local micros, step, is_even = step_of(c)
  if not is_even then
    return min(mark + ceil(units / step) * micros, NEVER)
  end
  local rest = units % step
  local whole, left = scaled(rest, micros, step)
  local time = (units - rest) / step * micros + whole + min(left, 1)
  return min(mark + time, NEVER)
end

-- What is missing now from a bucket with all whole steps until now.
local function missing(c, deficit, mark)
  local micros, step, is_even = step_of(c)
  if not is_even or deficit == 0 then
    return deficit
  end
  return max(0, deficit - scaled(max(0, now - mark), step, micros))
end

-- A bucket with all whole steps until now.
local function refilled(c, deficit, mark, full)
  if now >= full then
    return 0, now, now
  elseif mark > now + tolerated_skew(c.span) then
    return deficit, now, refilled_at(c, deficit, now)
  end
  local micros, step = step_of(c)
  local steps = floor(max(0, now - mark) / micros)
  local rest = max(0, deficit - steps * step)
  mark = mark + steps * micros
  if missing(c, rest, mark) == 0 then
    return 0, now, now
  end
  return rest, mark, full
end

-- A strict bucket waits from now on.
local function wait(c, deficit)
  c.deficit, c.mark = deficit, max(c.mark, now)
  c.full = refilled_at(c, c.deficit, c.mark)
end

algorithms[KIND] = {
  load = function(c)
    local value = get(c, 20)
    if value then
      c.deficit, c.mark, c.full = unpack('<I4dd', value)
    else
      c.deficit, c.mark, c.full = 0, 0, 0
    end
  end,

  open = function(c)
    c.healed = c.mark > now + tolerated_skew(c.span)
    c.deficit, c.mark, c.full = refilled(c, c.deficit, c.mark, c.full)
    c.missing = missing(c, c.deficit, c.mark)
    c.fits = c.missing + c.cost <= c.limit
  end,

  take = function(c)
    local taken = min(c.missing + c.cost, MOST)
    if is_strict(c) and taken >= c.limit then
      wait(c, taken)
    else
      c.deficit = min(c.deficit + c.cost, MOST)
      c.full = refilled_at(c, c.deficit, c.mark)
    end
  end,

  on_denied = function(c)
    if is_strict(c) and c.cost >= 1 and c.cost <= c.limit then
      wait(c, c.missing)
      return true
    end
    return c.healed
  end,

  save = function(c)
    set(c, pack('<I4dd', c.deficit, c.mark, c.full), c.full)
  end,

  reply = function(c)
    return pack('<ddd', c.deficit, c.mark, c.full)
  end,
}

if opcode == GIVE_BACK then
  algorithms[KIND].give_back = function(c, at, charged)
    c.deficit, c.mark, c.full = refilled(c, c.deficit, c.mark, c.full)
    local deficit, mark = refilled(c, charged, at, refilled_at(c, charged, at))
    local back = min(c.cost, missing(c, deficit, mark), missing(c, c.deficit, c.mark))
    if back <= 0 then
      return false
    end
    c.deficit = c.deficit - back
    -- The units that were given back are those that would have been refilled last.
    c.full = min(refilled_at(c, c.deficit, c.mark), c.full)
    return true
  end
end

if opcode == SEED then
  algorithms[KIND].join = function(c, numbers)
    local rest, since, ends = refilled(c, c.deficit, c.mark, c.full)
    local deficit, mark, full = refilled(c, numbers[1], numbers[2], numbers[3])
    local ours, theirs = missing(c, rest, since), missing(c, deficit, mark)
    local is_more = theirs > ours or (theirs == ours and full > ends)
    if is_more then
      c.deficit, c.mark, c.full = deficit, mark, full
    end
    return is_more, is_more
  end
end

if opcode == ADD then
  algorithms[KIND].add = function(c, numbers)
    c.deficit, c.mark, c.full = refilled(c, c.deficit, c.mark, c.full)
    local deficit, mark = refilled(c, numbers[1], numbers[2], numbers[3])
    if deficit == 0 then
      return false
    end
    if c.deficit == 0 then
      c.deficit, c.mark = deficit, mark
    else
      c.deficit = min(c.deficit + missing(c, deficit, mark), MOST)
    end
    c.full = refilled_at(c, c.deficit, c.mark)
    return true
  end
end
