<?php
require dirname(__DIR__) . '/reply.inc';
reply('admin');
