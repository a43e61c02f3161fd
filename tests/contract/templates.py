"""Chat templates in the manner of well-known models: what they do differently is what a renderer can get wrong."""

QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {%- generation %}{{- message.content }}{%- endgeneration %}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + (' name=' + message.name if message.name else '') + '\\n' }}
        {{- message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
"""Contents as texts, tools as JSON, calls' arguments as JSON, reasoning, `generation`."""

LLAMA = """\
{{- bos_token }}
{%- set loop_messages = messages[1:] if messages[0]['role'] == 'system' else messages %}
{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}
        {%- set system_message = messages[0]['content'] | trim %}
    {%- else %}
        {%- set system_message = messages[0]['content'][0]['text'] | trim %}
    {%- endif %}
{%- else %}
    {%- set system_message = 'Today is a day.' %}
{%- endif %}
{{- '<|im_start|>system\\n' + system_message + eos_token }}
{%- if documents %}
    {%- for document in documents %}
        {{- document.title + ': ' + document.text + '\\n' }}
    {%- endfor %}
{%- endif %}
{%- if tools is not none and date_string is defined %}{{- date_string }}{% endif %}
{%- for message in loop_messages %}
    {%- if message.role not in ['user', 'assistant', 'tool', 'developer', 'system', 'critic'] %}
        {{- raise_exception('unknown role') }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['content'] is string %}
        {{- message['content'] | trim }}
    {%- else %}
        {%- for part in message['content'] %}
            {%- if part['type'] == 'text' %}{{- part | tojson }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {%- if loop.index > 3 %}{% break %}{% endif %}
            {{- call | tojson(indent=2) }}
        {%- endfor %}
    {%- endif %}
    {{- eos_token }}
{%- endfor %}
{%- if tools %}{{- tools | tojson(indent=4) }}{%- endif %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n\\n' }}{%- endif %}
"""
"""Contents as parts, special tokens by name, documents, calls as whole JSON, the developer's role, loop controls."""
