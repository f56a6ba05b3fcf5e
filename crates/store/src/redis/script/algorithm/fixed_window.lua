-- limit: units in a window. span: the length of the longest window. x, y: 0 and 0 if windows begin
-- with a charge; x is -1 if they begin at multiples of the span; otherwise the ends of two windows,
-- one of which is open now.

-- The end of a window that is open at an instant near now.
local function end_of(c, at)
  if c.x == 0 then
    return at + c.span
  elseif c.x == -1 then
    return (floor(at / c.span) + 1) * c.span
  elseif c.x > at then
    return c.x
  elseif c.y > at then
    return c.y
  end
  return at + c.span
end

algorithms[KIND] = {
  load = function(c)
    local value = get(c, 12)
    if value then
      c.used, c.reset = unpack('<I4d', value)
    else
      c.used, c.reset = 0, 0
    end
  end,

  open = function(c)
    local is_over = now >= c.reset
    c.healed = c.reset > now + c.span and c.reset > end_of(c, now + tolerated_skew(c.span))
    if is_over then
      c.used = 0
    end
    if is_over or c.healed then
      c.reset = end_of(c, now)
    end
    c.fits = c.used + c.cost <= c.limit
  end,

  take = function(c)
    c.used = min(c.used + c.cost, MOST)
  end,

  on_denied = function(c)
    return c.healed
  end,

  save = function(c)
    set(c, pack('<I4d', c.used, c.reset), c.reset)
  end,

  reply = function(c)
    return pack('<dd', c.used, c.reset)
  end,
}

if opcode == GIVE_BACK then
  algorithms[KIND].give_back = function(c, at)
    local is_open = c.reset == at and now < c.reset
    c.used = is_open and max(0, c.used - c.cost) or c.used
    return is_open
  end
end

if opcode == SEED then
  algorithms[KIND].join = function(c, numbers)
    local used, reset = numbers[1], numbers[2]
    local is_more = now < reset and used > (now < c.reset and c.used or 0)
    if is_more then
      c.used, c.reset = used, reset
    end
    return is_more, is_more
  end
end

if opcode == ADD then
  algorithms[KIND].add = function(c, numbers)
    local used, reset = numbers[1], numbers[2]
    if now >= reset then
      return false
    end
    if now >= c.reset then
      c.used, c.reset = 0, reset
    end
    algorithms[KIND].open(c)
    c.used = min(c.used + used, MOST)
    return true
  end
end
