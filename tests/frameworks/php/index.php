<?php
require __DIR__ . '/reply.inc';
reply('index');
