-- limit: units that drain in a window. span: the window in steps. x: microseconds in a step, the
-- time grain. y: units that can be used at once. Levels are units times steps, and instants are
-- counted in steps, too, except in stored states and in replies. A level that was stored in other
-- steps is rounded up.

-- When an amount has drained from at on.
local function drained(c, amount, at)
  if c.limit == 0 then
    return min(at + c.span, NEVER)
  end
  return min(at + ceil(amount / c.limit), NEVER)
end

local function drain(c)
  local step = floor(now / c.x)
  if step >= c.full then
    c.level, c.at, c.full = 0, step, step
  elseif c.at > step + tolerated_skew(c.span * c.x) / c.x then
    c.at, c.full, c.healed = step, drained(c, c.level, step), true
  else
    local at = max(c.at, step)
    c.level = max(0, c.level - (at - c.at) * c.limit)
    c.at = at
  end
end

algorithms[KIND] = {
  load = function(c)
    c.level, c.at, c.full = 0, 0, 0
    local value = get(c, 26)
    if value then
      local x
      c.level, c.at, c.full, x = unpack('<dddI2', value)
      if x < c.x then
        c.level = ceil(c.level / c.x)
      elseif x > c.x then
        c.level = min(c.level * x, NEVER)
      end
      c.at, c.full = floor(c.at / c.x), ceil(c.full / c.x)
    end
  end,

  open = function(c)
    drain(c)
    c.fits = c.cost <= c.y and c.level <= (c.y - c.cost) * c.span
  end,

  take = function(c)
    c.level = min(c.level + c.cost * c.span, NEVER)
    c.full = drained(c, c.level, c.at)
  end,

  on_denied = function(c)
    return c.healed
  end,

  save = function(c)
    local full = c.full * c.x
    set(c, pack('<dddI2', c.level, c.at * c.x, full, c.x), full)
  end,

  reply = function(c)
    return pack('<ddd', c.level, c.at * c.x, c.full * c.x)
  end,
}

if opcode == GIVE_BACK then
  algorithms[KIND].give_back = function(c, at, rest)
    drain(c)
    local steps = at / c.x - c.at
    if steps < 0 then
      return false
    end
    local undrained = steps * c.limit + rest / c.x
    local back = min(undrained, c.cost * c.span, c.level)
    if back <= 0 then
      return false
    end
    c.level = c.level - back
    c.full = min(drained(c, c.level, c.at), c.full)
    return true
  end
end

if opcode == SEED or opcode == ADD then
  -- What has not drained yet of the state that the numbers encode.
  local function drained_of(c, numbers)
    local other = { limit = c.limit, span = c.span, x = c.x, level = numbers[1] }
    other.at, other.full = floor(numbers[2] / c.x), ceil(numbers[3] / c.x)
    drain(other)
    return other
  end

  algorithms[KIND].join = function(c, numbers)
    local other = drained_of(c, numbers)
    drain(c)
    local is_more = other.full > c.full or (other.full == c.full and other.level > c.level)
    if is_more then
      c.level, c.at, c.full = other.level, other.at, other.full
    end
    return is_more, is_more
  end

  algorithms[KIND].add = function(c, numbers)
    local other = drained_of(c, numbers)
    drain(c)
    if other.level == 0 then
      return false
    end
    c.level = min(c.level + other.level, NEVER)
    c.full = drained(c, c.level, c.at)
    return true
  end
end
